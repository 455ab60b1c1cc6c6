#!/usr/bin/env python3
"""The dashboard as it is served, and as people see it in a browser.

  dashboard_test.py page BINARY MODEL_DIR PAGE        what is served, without a browser
  dashboard_test.py browser BINARY MODEL_DIR PAGE     in headless Chromium; exits 77 where there is none
  dashboard_test.py pictures BINARY MODEL_DIR PAGE FOLDER SECONDS   takes the pictures of the documentation
"""
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import unittest

from serve_process import ServeProcess

MODE, BINARY, MODEL, PAGE = sys.argv[1:5]
NO_BROWSER = 77  # what ctest takes as: skipped
CHROMIUM = shutil.which("chromium")
KEYS = {"operator": "operator-key-of-the-test", "acme": "key-of-acme-in-the-test"}


def read_page():
    with open(PAGE, "rb") as page:
        return page.read()


def content_of(page, tag):
    return re.search(rf"<{tag}>(.*?)</{tag}>".encode(), page, re.S).group(1)


def hash_source(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


class References(html.parser.HTMLParser):
    """What a page wants from elsewhere, and what its policy would forbid."""

    def __init__(self, page):
        super().__init__()
        self.outside, self.forbidden = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset", "data", "poster") and not re.match(r"data:|#", value or ""):
                self.outside.append((tag, name, value))
            if name == "style" or name.startswith("on"):
                self.forbidden.append((tag, name))


class Served(unittest.TestCase):
    """A server of its own, with a store, for each class."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="emberkv_dashboard_")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.server = ServeProcess(BINARY, MODEL, os.path.join(cls.dir, "log"), "--store",
                                  os.path.join(cls.dir, "store"), "--store-size", "256M", *cls.more_options())
        cls.addClassCleanup(cls.server.kill)

    @classmethod
    def more_options(cls):
        return ()


class ServedWithKeys(Served):
    @classmethod
    def more_options(cls):
        path = os.path.join(cls.dir, "keys.json")
        tenants = [{"name": name, "keys": [hashlib.sha256(key.encode()).hexdigest()], "operator": name == "operator"}
                   for name, key in KEYS.items()]
        with open(path, "w", encoding="utf-8") as keys:
            json.dump({"tenants": tenants}, keys)
        return ("--keys", path)


class PageTest(ServedWithKeys):
    def test_is_served_without_a_key(self):
        reply = self.server.get("/")
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(reply.body, read_page())
        self.assertEqual(self.server.call("HEAD", "/").status, 200)
        self.assertEqual(self.server.post("/", {}).status, 405)

    def test_its_policy_allows_its_own_style_and_script_only(self):
        page = read_page()
        self.assertEqual((page.count(b"<script"), page.count(b"<style")), (1, 1))
        policy = dict(part.strip().split(" ", 1) for part in
                      self.server.get("/").headers["Content-Security-Policy"].split(";"))
        self.assertEqual(policy, {
            "default-src": "'none'", "script-src": hash_source(content_of(page, "script")),
            "style-src": hash_source(content_of(page, "style")), "connect-src": "'self'", "img-src": "data:",
            "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"})

    def test_asks_nothing_of_other_machines(self):
        page = read_page().decode()
        references = References(page)
        self.assertEqual(references.outside, [])
        self.assertEqual(references.forbidden, [])
        self.assertEqual(re.findall(r"@import|url\(", content_of(page.encode(), "style").decode()), [])
        namespaces = {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}
        self.assertEqual(set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[\w./-]*", page)), namespaces)

    def test_its_script_parses(self):
        import quickjs  # scripts/setup installs it
        parse = quickjs.Context().eval("(script) => { new Function(script); return true; }")
        script = content_of(read_page(), "script").decode()
        self.assertTrue(parse(script))
        with self.assertRaises(quickjs.JSException):
            parse(script + "}")

    def test_texts_never_become_markup(self):
        script = content_of(read_page(), "script").decode()
        self.assertEqual(re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", script), [])


class BrowserTest(unittest.TestCase):
    """Pages of a browser that all tests share. A page that logs an error fails its test."""

    def open_page(self, server, scheme="light", width=1280, height=900, **more):
        context = BROWSER.new_context(color_scheme=scheme, viewport={"width": width, "height": height}, **more)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(60000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: self.assertTrue(request.url.startswith((server.url, "data:")), request.url))
        page.goto(server.url + "/")
        return page

    def setUp(self):
        self.errors = []

    def assert_no_errors(self):
        self.assertEqual(self.errors, [])

    @staticmethod
    def wait_live(page):
        page.locator("#status[data-state=live]").wait_for()

    @staticmethod
    def ask_example(page):
        """The next question of the example; the answer's box when it is complete."""
        asked = page.locator(".message.assistant").count()
        page.locator("#ask-example").click()
        page.locator("#ask-send").click()
        answer = page.locator(".message.assistant").nth(asked)
        answer.locator(".trace").wait_for()
        return answer


class NewServerTest(BrowserTest, Served):
    def test_a_new_server_shows_hints_and_the_chat_fills_the_panels(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        for hint in ("Waiting for the first prompt", "Nothing runs.", "appear with the first answer",
                     "No page is stored yet", "appear with the first request", "Paste a text and ask about it"):
            page.get_by_text(hint).first.wait_for()
        first = self.ask_example(page)
        self.assertEqual(first.locator(".text").inner_text(), "482 913.")
        self.assertIn("0 % from the cache", first.locator(".trace").inner_text())
        second = self.ask_example(page)
        self.assertEqual(second.locator(".text").inner_text(), "117 640.")
        self.assertRegex(second.locator(".trace").inner_text(), r"9\d(\.\d)? % from the cache.*Saved \$0\.000\d+")
        page.locator("#tenants", has_text="local").wait_for()
        totals = self.server.get("/v1/cache/stats").json["totals"]
        self.assertEqual(totals["requests"], 2)
        share = round(100 * totals["hit_tokens"] / totals["prompt_tokens"])
        page.locator("#tiles", has_text=f"{share} %").wait_for()
        page.locator("#tokens-legend", has_text=f"Computed {totals['miss_tokens']:,}").wait_for()
        self.assertGreater(page.locator("#history .bar.memory").count(), 0)
        self.assertGreater(page.locator("#history .bar.computed").count(), 0)
        self.assert_no_errors()


class LookTest(BrowserTest, Served):
    def test_running_requests_show_phase_and_progress(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        body = {"prompt": "The code for bronze orchid is", "max_tokens": 1000, "temperature": 2, "n": 4}
        seen = threading.Event()

        def ask_until_seen():
            while not seen.is_set():
                self.server.post("/v1/completions", body)

        asking = threading.Thread(target=ask_until_seen)
        asking.start()
        try:
            row = re.compile("decode.*completion.*local.*tokens? written.*req-")
            page.locator("#requests tbody tr", has_text=row).wait_for()
        finally:
            seen.set()
            asking.join()
        page.locator("#requests", has_text="Nothing runs.").wait_for()
        self.assert_no_errors()

    def test_a_lost_connection_is_said_and_ends(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        page.route("**/v1/**", lambda route: route.abort())
        page.locator("#lost", has_text="Connection lost").wait_for()
        self.assertEqual(page.locator("#status").inner_text(), "Connection lost")
        page.unroute("**/v1/**")
        self.wait_live(page)
        self.assertFalse(page.locator("#lost").is_visible())

    def test_refused_questions_say_why_and_can_be_put_again(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        page.locator("#ask-text").fill("<img src=x> <｜User｜>")
        page.route("**/v1/chat/completions", lambda route: route.fulfill(
            status=503, headers={"Retry-After": "7"}, json={"error": {"message": "too many wait"}}))
        page.locator("#ask-text").press("Enter")
        page.locator(".message.failed", has_text="Refused: too many wait; try again in 7 s").wait_for()
        self.assertEqual(page.locator("#log img").count(), 0)
        page.unroute("**/v1/chat/completions")
        self.assertEqual(self.ask_example(page).locator(".text").inner_text(), "482 913.")

    def test_draws_what_expires_when(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        self.ask_example(page)

        def tell(route):
            reply = route.fetch()
            stats = reply.json()
            stats["tiers"]["store"] |= {"retention_seconds": 72 * 3600, "deadlines": [
                {"in_seconds": 5 * 3600, "pages": 2, "bytes": 32768},
                {"in_seconds": 71 * 3600, "pages": 1, "bytes": 16384}]}
            route.fulfill(response=reply, json=stats)

        page.route("**/v1/cache/stats", tell)
        chart = page.locator("#retention svg")
        chart.locator(".bar").nth(1).wait_for(state="attached")  # until then the server's own
        self.assertEqual(chart.locator(".bar").count(), 2)
        self.assertIn("within 6 h 32 KiB", chart.get_attribute("aria-label"))
        page.locator("#retention", has_text="Next deadline in5 h").wait_for()

    def test_fits_a_phone(self):
        page = self.open_page(self.server, width=320, height=640, is_mobile=True, has_touch=True)
        self.wait_live(page)
        self.ask_example(page)
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), 320)
        self.assert_no_errors()

    def test_follows_the_system_into_the_dark_and_can_be_told_otherwise(self):
        page = self.open_page(self.server, scheme="dark")
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Switch between light and dark").click()
        light = page.evaluate(ground)
        self.assertNotEqual(dark, light)
        page.reload()
        self.assertEqual(page.evaluate(ground), light)

    def test_is_readable_with_the_keyboard_and_has_names_for_all(self):
        page = self.open_page(self.server)
        self.wait_live(page)
        self.ask_example(page)
        page.locator("#history").focus()
        page.keyboard.press("ArrowLeft")
        page.locator("#history .tip", has_text="Hit rate").wait_for()
        page.keyboard.press("Escape")
        self.assertEqual(page.locator("#history .tip").count(), 0)
        nameless = page.evaluate("""[...document.querySelectorAll(
            'button, input, textarea, section, [role=img], [tabindex]')]
            .filter((node) => !(node.labels && node.labels.length) && !node.getAttribute('aria-label') &&
                !node.getAttribute('aria-labelledby') && !(node.tagName === 'BUTTON' && node.innerText.trim()))
            .map((node) => node.outerHTML.slice(0, 100))""")
        self.assertEqual(nameless, [])

    def test_has_contrast_in_light_and_dark(self):
        for scheme in ("light", "dark"):
            page = self.open_page(self.server, scheme=scheme)
            self.wait_live(page)
            self.ask_example(page)
            self.assertEqual(page.evaluate(WEAK_TEXTS), [], scheme)
            page.evaluate("""document.documentElement.style.setProperty(
                '--ink-faint', getComputedStyle(document.body).backgroundColor)""")
            self.assertNotEqual(page.evaluate(WEAK_TEXTS), [], "the check finds nothing")


# Texts whose contrast with what lies behind them is below 4.5.
WEAK_TEXTS = """(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest('script, .visually-hidden, .skip')) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(node.ownerSVGElement ? style.fill : style.color)), light(ground(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) weak.push(`${contrast.toFixed(2)} ${node.tagName} ${node.textContent.slice(0, 40)}`);
  }
  return weak;
})()"""


class KeyTest(BrowserTest, ServedWithKeys):
    def test_asks_for_a_key_and_keeps_it_in_the_tab(self):
        page = self.open_page(self.server)
        enter = page.locator("#key-text")
        enter.fill("not a key")
        enter.press("Enter")
        page.locator("#key-hint", has_text="does not know this key").wait_for()
        self.assertFalse(page.locator("#tiles").is_visible())

        enter.fill(KEYS["operator"])
        enter.press("Enter")
        self.wait_live(page)
        self.assertTrue(page.locator("#tiles").is_visible())
        self.assertFalse(page.locator("#denied").is_visible())
        self.ask_example(page)
        page.locator("#tenants", has_text="operator").wait_for()
        page.reload()
        self.wait_live(page)
        self.assertEqual(page.evaluate("[Object.keys(sessionStorage), Object.keys(localStorage), document.cookie]"),
                         [["emberkv-key"], [], ""])

        page.locator("#forget").click()
        enter.wait_for()
        self.assertFalse(page.locator("#tiles").is_visible())

    def test_shows_a_tenant_its_own_and_no_more(self):
        page = self.open_page(self.server)
        page.locator("#key-text").fill(KEYS["acme"])
        page.locator("#key-form button").click()
        self.wait_live(page)
        self.assertTrue(page.locator("#denied").is_visible())
        for panel in ("#tiles", "#tiers", "#history", "#tenants"):
            self.assertFalse(page.locator(panel).is_visible(), panel)
        self.assertEqual(self.ask_example(page).locator(".text").inner_text(), "482 913.")


class Pictures(BrowserTest, ServedWithKeys):
    """Not a test: a server under some load, for the documentation."""

    def work(self, key, seed, end):
        words = "code file page word line mill lake shop road".split()
        text = " ".join(f"The {words[(i * 7 + seed) % 9]} is near the {words[(i * i + seed) % 9]}."
                        for i in range(150 + 40 * seed))
        for turn in range(10 ** 6):
            if time.monotonic() > end:
                return
            fresh = turn % 4 == 0
            prompt = (f"Case {turn}. " if fresh else "") + text + f" Question {turn}:"
            self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 40 + 25 * seed, "temperature": 1}, key=key)
            time.sleep(1.5 + seed % 3 + (6 if turn % 7 == 6 else 0))

    def shot(self, page, name):
        """With requests that run and wait."""
        done = threading.Event()

        def keep_busy(key):
            while not done.is_set():
                self.server.post("/v1/completions", {"prompt": "The code for bronze orchid is", "max_tokens": 1500,
                                                     "temperature": 2, "n": 8}, key=key)

        clients = [threading.Thread(target=keep_busy, args=(key,)) for key in list(KEYS.values()) * 5]
        for client in clients:
            client.start()
        try:
            page.locator("#requests tbody tr", has_text="queued").first.wait_for()
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=os.path.join(FOLDER, name), full_page="phone" not in name)
        finally:
            done.set()
            for client in clients:
                client.join()

    def test_take(self):
        end = time.monotonic() + PICTURE_SECONDS
        clients = [threading.Thread(target=self.work, args=(key, seed, end))
                   for seed, key in enumerate(list(KEYS.values()) * 2)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        for name, scheme, size, more in (("dashboard-light.png", "light", (1280, 900), {}),
                                         ("dashboard-dark.png", "dark", (1280, 900), {}),
                                         ("dashboard-phone.png", "light", (360, 740), {"is_mobile": True, "has_touch": True})):
            page = self.open_page(self.server, scheme, *size, **more)
            page.locator("#key-text").fill(KEYS["operator"])
            page.locator("#key-form button").click()
            self.wait_live(page)
            self.ask_example(page)
            self.ask_example(page)
            self.shot(page, name)


def load(*cases):
    return unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases)


def run(suite):
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if MODE == "page":
    sys.exit(run(load(PageTest)))
if CHROMIUM is None:
    print("skipped: there is no chromium here; scripts/setup browser installs it")
    sys.exit(NO_BROWSER)
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    print("skipped: this Python has no playwright; scripts/setup browser installs it into .venv")
    sys.exit(NO_BROWSER)
with sync_playwright() as playwright:
    # A browser that runs as root has no sandbox.
    BROWSER = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
    if MODE == "pictures":
        FOLDER, PICTURE_SECONDS = sys.argv[5], int(sys.argv[6])
        code = run(load(Pictures))
    else:
        code = run(load(NewServerTest, LookTest, KeyTest))
    BROWSER.close()
sys.exit(code)
