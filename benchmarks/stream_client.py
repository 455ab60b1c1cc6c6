"""An asynchronous HTTP client, cheap enough for a thousand tasks in one process. Used by the server's benchmarks."""
import asyncio
import json
import urllib.parse


class Reply:
    """The answer to one request, which has a connection of its own: its head, then pieces of the body as they come."""

    def __init__(self, reader, writer, status, headers):
        self._reader, self._writer = reader, writer
        self.status, self.headers = status, headers

    @property
    def request_id(self):
        return self.headers.get("x-request-id")

    async def pieces(self):
        """Pieces of the body; ends where it ends, or with a ConnectionError where it is cut off."""
        try:
            if "content-length" in self.headers:
                yield await self._reader.readexactly(int(self.headers["content-length"]))
                return
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise ConnectionResetError("the answer is cut off") from error

    async def body(self):
        return b"".join([piece async for piece in self.pieces()])

    def close(self):
        self._writer.close()


def request_bytes(path, body):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


async def connect(url):
    address = urllib.parse.urlparse(url)
    return await asyncio.open_connection(address.hostname, address.port)


async def post(url, path, body):
    """A Reply once its head is there. ConnectionError when the server is not, or goes."""
    reader, writer = await connect(url)
    try:
        writer.write(request_bytes(path, body))
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError as error:
        writer.close()
        raise ConnectionResetError("no answer") from error
    except BaseException:
        writer.close()
        raise
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return Reply(reader, writer, int(head[0].split()[1]), {name.lower(): value for name, value in headers.items()})


def events(body):
    """The objects of a whole stream, which must have ended as it should."""
    data = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    if not data or data[-1] != "[DONE]":
        raise ConnectionResetError("the stream has no end")
    return [json.loads(line) for line in data[:-1]]
