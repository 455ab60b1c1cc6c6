#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "server/http_test_client.h"

namespace emberkv {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

HttpServerOptions WithLimits(const std::function<void(HttpLimits*)>& change) {
  HttpServerOptions options;
  change(&options.limits);
  options.error_body = [](int status, std::string_view message) {
    return HttpErrorBody{"application/json", "{\"code\":" + std::to_string(status) + ",\"message\":\"" +
                                                 std::string(message) + "\"}"};
  };
  return options;
}

HttpServerOptions DefaultOptions() {
  return WithLimits([](HttpLimits*) {});
}

TEST(HttpServer, KeepsConnectionAcrossRequests) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    const auto response = client.Get("/a/b?n=" + std::to_string(i));
    EXPECT_EQ(response.result_int(), 200u);
    EXPECT_TRUE(response.keep_alive());
    EXPECT_EQ(response.body(), "GET /a/b?n=" + std::to_string(i) + " ");
  }
  EXPECT_EQ(server->Stats().accepted, 1u);
  EXPECT_EQ(server->Stats().requests, 3u);
}

TEST(HttpServer, ShowsTheHandlerTheRequest) {
  HttpInbox inbox;
  const auto server = StartHttp(DefaultOptions(), inbox.Handler());
  HttpTestClient client(server->port());
  client.Send("POST http://elsewhere/v1/x%20y?a=b?c HTTP/1.1\r\nHost: test\r\nX-One: 1\r\nx-one: 2\r\n"
              "Content-Length: 4\r\n\r\nbody");
  const auto exchange = inbox.TakeOne();
  const HttpRequest& request = exchange->request();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/x%20y");
  EXPECT_EQ(request.query, "a=b?c");
  EXPECT_EQ(request.body, "body");
  EXPECT_EQ(request.peer_address, "127.0.0.1");
  EXPECT_EQ(request.Header("X-ONE"), "1");
  EXPECT_EQ(request.Header("host"), "test");
  EXPECT_EQ(request.Header("x-on"), std::nullopt);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  HttpInbox inbox;
  const auto server = StartHttp(DefaultOptions(), inbox.Handler());
  HttpTestClient client(server->port());
  std::string all;
  for (const char* path : {"/first", "/second", "/third"}) {
    all += "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc";
  }
  client.Send(all);
  for (const char* path : {"/first", "/second", "/third"}) {
    const auto exchange = inbox.TakeOne();
    EXPECT_EQ(exchange->request().path, path);
    AnswerEcho(exchange->request(), exchange);
    EXPECT_EQ(client.Read().body(), "POST " + std::string(path) + "? abc");
  }
}

TEST(HttpServer, TakesPipelinedRequestsBeyondItsInput) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->max_header_bytes = 1024; });
  const auto server = StartHttp(options, AnswerEcho);
  HttpTestClient client(server->port());
  constexpr int kRequests = 5000;
  std::thread sender([&] {
    for (int i = 0; i < kRequests; ++i) {
      client.Send("GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: test\r\n\r\n");
    }
  });
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.Read().body(), "GET /" + std::to_string(i) + "? ");
  sender.join();
}

TEST(HttpServer, ReadsChunkedBody) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient client(server->port());
  client.Send("POST /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  client.Send("7;ext=1\r\n, world\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(client.Read().body(), "POST /x? hello, world");
  EXPECT_EQ(client.Get("/next").body(), "GET /next? ");
}

TEST(HttpServer, AnswersHeadWithoutBody) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient client(server->port());
  client.Send("HEAD /x HTTP/1.1\r\nHost: test\r\n\r\n");
  const auto response = client.Read(true);
  EXPECT_EQ(response["Content-Length"], "9");
  EXPECT_EQ(client.Get("/next").body(), "GET /next? ");
}

TEST(HttpServer, InvitesBodyThatWaitsToBeAskedFor) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient client(server->port());
  const std::string head = "POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nExpect: ";
  client.Send(head + "100-continue\r\n\r\n");
  EXPECT_EQ(client.Read(true).result_int(), 100u);
  client.Send("body");
  EXPECT_EQ(client.Read().body(), "POST /x? body");
  client.Send(head + "coffee\r\n\r\n");
  EXPECT_EQ(client.Read().result_int(), 417u);
}

TEST(HttpServer, ClosesWhenTheClientWantsIt) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient asked(server->port());
  asked.Send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(asked.ReadToEnd(), HasSubstr("Connection: close\r\n"));
  HttpTestClient old(server->port());
  old.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadToEnd(), StartsWith("HTTP/1.0 200 OK\r\n"));
}

TEST(HttpServer, AnswersClientThatHasSaidItsLastWord) {
  // The answer is complete before the end is read.
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  HttpTestClient client(server->port());
  client.Send("GET /x HTTP/1.1\r\nHost: test\r\n\r\n");
  client.FinishSending();
  EXPECT_EQ(client.Read().body(), "GET /x? ");
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_EQ(server->Stats().disconnects, 0u);
}

TEST(HttpServer, RefusesMalformedRequests) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  const std::string post = "POST / HTTP/1.1\r\nHost: test\r\n";
  for (const std::string& bytes : {
           std::string("\x16\x03\x01\x02TLS to a plain port\r\n\r\n"), std::string("GET\r\n\r\n"),
           std::string("GET / HTTP/2.0\r\nHost: test\r\n\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), post + "No colon\r\n\r\n",
           post + "Content-Length: two\r\n\r\n", post + "Content-Length: -1\r\n\r\n",
           post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
           post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: gzip\r\n\r\n", post + "Transfer-Encoding: gzip, chunked\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    HttpTestClient client(server->port());
    client.Send(bytes);
    const auto response = client.Read();
    EXPECT_EQ(response.result_int(), 400u) << bytes;
    EXPECT_FALSE(response.keep_alive());
    EXPECT_EQ(response["Content-Type"], "application/json");
    EXPECT_THAT(response.body(), StartsWith("{\"code\":400,"));
    EXPECT_EQ(client.ReadToEnd(), "");
  }
  EXPECT_EQ(server->Stats().requests, 0u);
  EXPECT_EQ(server->Stats().errors, 14u);
}

TEST(HttpServer, RefusesBodyBeyondItsLimit) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->max_body_bytes = 1000; });
  const auto server = StartHttp(options, AnswerEcho);
  const std::string post = "POST / HTTP/1.1\r\nHost: test\r\n";
  HttpTestClient fits(server->port());
  fits.Send(post + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_EQ(fits.Read().body().size(), 1000 + std::string("POST /? ").size());
  HttpTestClient declared(server->port());
  declared.Send(post + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
  EXPECT_EQ(declared.Read().result_int(), 413u);
  HttpTestClient chunked(server->port());
  chunked.Send(post + "Transfer-Encoding: chunked\r\n\r\n1f4\r\n" + std::string(500, 'x') + "\r\n1f5\r\n" +
               std::string(501, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().result_int(), 413u);
}

TEST(HttpServer, AnswersTooLargeBodyThoughTheClientGoesOnSending) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->max_body_bytes = 1000; });
  const auto server = StartHttp(options, AnswerEcho);
  HttpTestClient client(server->port());
  client.Send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4000000\r\n\r\n" +
              std::string(4'000'000, 'x'));
  EXPECT_EQ(client.Read().result_int(), 413u);
}

TEST(HttpServer, RefusesHeadBeyondItsLimit) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->max_header_bytes = 1024; });
  const auto server = StartHttp(options, AnswerEcho);
  for (const std::string& bytes : {"GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: test\r\n\r\n",
                                   "GET / HTTP/1.1\r\nHost: test\r\nX: " + std::string(100'000, 'x'),
                                   std::string(50'000, 'x')}) {
    HttpTestClient client(server->port());
    client.Send(bytes);
    EXPECT_EQ(client.Read().result_int(), 431u) << bytes.substr(0, 40);
  }
  HttpTestClient endless_chunk_head(server->port());
  endless_chunk_head.Send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                          std::string(50'000, 'x'));
  EXPECT_EQ(endless_chunk_head.Read().result_int(), 431u);
}

TEST(HttpServer, RefusesBodiesBeyondTheBudgetOfAll) {
  HttpInbox inbox;
  const auto server = StartHttp(WithLimits([](HttpLimits* limits) {
                                  limits->max_body_bytes = 1000;
                                  limits->max_total_body_bytes = 1500;
                                }),
                                inbox.Handler());
  const std::string post =
      "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x');
  HttpTestClient first(server->port()), second(server->port());
  first.Send(post);
  auto exchange = inbox.TakeOne();
  EXPECT_EQ(server->Stats().body_bytes, 1000u);
  second.Send(post);
  EXPECT_EQ(second.Read().result_int(), 503u);
  exchange->Reply(200, {}, "");
  exchange.reset();
  EXPECT_EQ(server->Stats().body_bytes, 0u);
  HttpTestClient third(server->port());
  third.Send(post);
  EXPECT_EQ(inbox.TakeOne()->request().body.size(), 1000u);
}

TEST(HttpServer, RefusesConnectionsBeyondItsLimit) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->max_connections = 2; });
  const auto server = StartHttp(options, AnswerEcho);
  auto first = std::make_unique<HttpTestClient>(server->port());
  HttpTestClient second(server->port());
  EXPECT_EQ(first->Get("/").result_int(), 200u);
  EXPECT_EQ(second.Get("/").result_int(), 200u);
  HttpTestClient third(server->port());
  const auto refusal = third.Get("/");
  EXPECT_EQ(refusal.result_int(), 503u);
  EXPECT_FALSE(refusal.keep_alive());
  EXPECT_EQ(second.Get("/").result_int(), 200u);
  first.reset();
  WaitUntil([&] { return HttpTestClient(server->port()).Get("/").result_int() == 200u; });
  EXPECT_GE(server->Stats().refused, 1u);
}

TEST(HttpServer, EndsRequestsThatDoNotArriveInTime) {
  const auto server = StartHttp(WithLimits([](HttpLimits* limits) {
                                  limits->header_timeout = milliseconds(50);
                                  limits->body_timeout = milliseconds(50);
                                  limits->idle_timeout = milliseconds(50);
                                }),
                                AnswerEcho);
  HttpTestClient head(server->port());
  head.Send("GET / HTTP/1.1\r\nHost: te");
  EXPECT_EQ(head.Read().result_int(), 408u);
  HttpTestClient body(server->port());
  body.Send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_EQ(body.Read().result_int(), 408u);
  HttpTestClient silent(server->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
  HttpTestClient idle(server->port());
  EXPECT_EQ(idle.Get("/").result_int(), 200u);
  EXPECT_EQ(idle.ReadToEnd(), "");
}

TEST(HttpServer, DoesNotExtendTheTimeOfClientsThatTrickle) {
  const auto options = WithLimits([](HttpLimits* limits) { limits->header_timeout = milliseconds(100); });
  const auto server = StartHttp(options, AnswerEcho);
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\n");
  while (client.Send("A: b\r\n")) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(server->Stats().errors, 1u);
}

TEST(HttpServer, AnswersForHandlersThatDoNot) {
  const HttpHandler forgets = [](const HttpRequest& request, const std::shared_ptr<HttpExchange>&) {
    if (request.path == "/throws") throw std::runtime_error("from the handler");
  };
  const auto server = StartHttp(DefaultOptions(), forgets);
  HttpTestClient client(server->port());
  EXPECT_EQ(client.Get("/forgets").result_int(), 500u);
  EXPECT_THAT(client.Get("/throws").body(), StartsWith("{\"code\":500,"));
}

TEST(HttpServer, AnswersOnce) {
  HttpInbox inbox;
  const auto server = StartHttp(DefaultOptions(), inbox.Handler());
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
  const auto exchange = inbox.TakeOne();
  EXPECT_FALSE(exchange->WriteChunk("before the head"));
  EXPECT_TRUE(exchange->Reply(404, {}, "one"));
  EXPECT_FALSE(exchange->Reply(200, {}, "two"));
  EXPECT_FALSE(exchange->BeginStream(200, {}));
  EXPECT_FALSE(exchange->WriteChunk("late"));
  EXPECT_FALSE(exchange->EndStream());
  EXPECT_EQ(client.Read().body(), "one");
}

TEST(HttpServer, LeavesOutHeadersThatWouldBreakTheHead) {
  const HttpHandler splits = [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, {{"X-Good", "yes"}, {"X-Bad", "a\r\nSet-Cookie: b"}, {"X-Bad\nX-Worse", "c"}}, "ok");
  };
  const auto server = StartHttp(DefaultOptions(), splits);
  HttpTestClient client(server->port());
  const auto response = client.Get("/");
  EXPECT_EQ(response["X-Good"], "yes");
  EXPECT_EQ(response.count("X-Bad") + response.count("X-Worse") + response.count("Set-Cookie"), 0u);
}

TEST(HttpServer, SendsLargeReplyWhole) {
  const std::string large(20'000'000, 'y');
  const HttpHandler sends = [&](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, {}, large);
  };
  const auto server = StartHttp(DefaultOptions(), sends);
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  const std::string bytes = client.ReadToEnd();
  EXPECT_EQ(bytes.substr(bytes.find("\r\n\r\n") + 4), large);
}

TEST(HttpServer, SaysWhyItDoesNotStart) {
  const auto first = StartHttp(DefaultOptions(), AnswerEcho);
  HttpServerOptions same_port;
  same_port.port = first->port();
  const auto second = HttpServer::Start(same_port, AnswerEcho);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "cannot listen on 127.0.0.1 port " + std::to_string(first->port()) + ": Address already in use");
  HttpServerOptions options;
  options.address = "localhost!";
  EXPECT_THAT(HttpServer::Start(options, AnswerEcho).status().message(),
              StartsWith("address is 'localhost!'"));
  options = {};
  options.io_threads = 0;
  EXPECT_EQ(HttpServer::Start(options, AnswerEcho).status().message(), "io_threads is 0, must be at least 1");
  options = WithLimits([](HttpLimits* limits) { limits->max_buffered_bytes = 10; });
  EXPECT_EQ(HttpServer::Start(options, AnswerEcho).status().message(),
            "max_buffered_bytes is 10, must be at least 1024");
  options = WithLimits([](HttpLimits* limits) { limits->write_timeout = milliseconds(0); });
  EXPECT_EQ(HttpServer::Start(options, AnswerEcho).status().code(), StatusCode::kInvalidArgument);
}

TEST(HttpServer, SurvivesGarbage) {
  const auto server = StartHttp(DefaultOptions(), AnswerEcho);
  std::mt19937 random(20260811);
  const std::string valid =
      "POST /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  for (int round = 0; round < 600; ++round) {
    std::string bytes = round % 3 == 0 ? std::string(random() % 3000, '\0') : valid + valid;
    if (round % 3 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    HttpTestClient client(server->port());
    client.Send(bytes);
    client.FinishSending();
    if (round % 2 == 0) client.ReadToEnd();
  }
  EXPECT_EQ(HttpTestClient(server->port()).Get("/alive").body(), "GET /alive? ");
  WaitUntil([&] { return server->Stats().open_connections == 0; });
}

}  // namespace
}  // namespace emberkv
