// Streams, clients that leave, and the end of the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/http_send_queue.h"
#include "server/http_server.h"
#include "server/http_test_client.h"

namespace emberkv {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using std::chrono::milliseconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const HttpHeaders kEventStream = {{"Content-Type", "text/event-stream"}};

TEST(HttpStream, SendsChunksAsTheyAreWritten) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(kGet);
  const auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, kEventStream));
  EXPECT_TRUE(exchange->WriteChunk("data: 1\n\n"));
  EXPECT_TRUE(exchange->WriteChunk(""));  // does not end the stream
  EXPECT_TRUE(exchange->WriteChunk("data: 2\n\n"));
  EXPECT_TRUE(exchange->EndStream());
  EXPECT_FALSE(exchange->WriteChunk("data: 3\n\n"));
  const auto response = client.Read();
  EXPECT_TRUE(response.chunked());
  EXPECT_EQ(response["Content-Type"], "text/event-stream");
  EXPECT_EQ(response.body(), "data: 1\n\ndata: 2\n\n");
  client.Send(kGet);
  inbox.TakeOne()->Reply(200, {}, "next");
  EXPECT_EQ(client.Read().body(), "next");
}

TEST(HttpStream, EndsWithTheConnectionForOldClients) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, {}));
  EXPECT_TRUE(exchange->WriteChunk("plain "));
  EXPECT_TRUE(exchange->WriteChunk("text"));
  EXPECT_TRUE(exchange->EndStream());
  const std::string bytes = client.ReadToEnd();
  EXPECT_THAT(bytes, Not(HasSubstr("chunked")));
  EXPECT_THAT(bytes, EndsWith("\r\n\r\nplain text"));
}

TEST(HttpStream, HasNoBodyForHead) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send("HEAD / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  const auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, kEventStream));
  EXPECT_TRUE(exchange->WriteChunk("data: 1\n\n"));
  EXPECT_TRUE(exchange->EndStream());
  EXPECT_THAT(client.ReadToEnd(), EndsWith("\r\n\r\n"));
}

TEST(HttpStream, IsBrokenOffWhenItsWriterForgetsIt) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(kGet);
  auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, kEventStream));
  EXPECT_TRUE(exchange->WriteChunk("data: 1\n\n"));
  exchange.reset();
  EXPECT_THAT(client.ReadToEnd(), Not(EndsWith("0\r\n\r\n")));
}

TEST(HttpStream, PassesTextLargerThanTheBuffer) {
  HttpServerOptions options;
  options.limits.max_buffered_bytes = 4096;
  HttpInbox inbox;
  const auto server = StartHttp(options, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(kGet);
  const std::string text(3'000'000, 'x');
  std::thread worker([&, exchange = inbox.TakeOne()] {
    EXPECT_TRUE(exchange->BeginStream(200, {}));
    EXPECT_TRUE(exchange->WriteChunk(text));
    EXPECT_TRUE(exchange->EndStream());
  });
  EXPECT_EQ(client.Read().body(), text);
  worker.join();
}

TEST(HttpSendQueue, SendsAtOnceOnlyWhileTheWriterSleeps) {
  std::string sent, taken;
  int wakes = 0;
  HttpSendQueue queue(100, [&] { ++wakes; }, [&](std::string_view bytes) {  // a system that takes two bytes
    sent += bytes.substr(0, 2);
    return std::min<size_t>(2, bytes.size());
  });
  const auto add = [&](std::string_view bytes) { return queue.AddWhenRoom(bytes, milliseconds(0)); };
  EXPECT_EQ(add("ab"), HttpSendQueue::Added::kQueued);
  EXPECT_EQ(wakes, 0);
  EXPECT_EQ(add("cdef"), HttpSendQueue::Added::kQueued);
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(add("g"), HttpSendQueue::Added::kQueued);  // may not overtake
  EXPECT_EQ(sent, "abcd");
  EXPECT_EQ(queue.Take(&taken), HttpSendQueue::Taken::kBytes);
  EXPECT_EQ(taken, "efg");
  EXPECT_EQ(add("h"), HttpSendQueue::Added::kQueued);  // nor what the writer has and may not have written yet
  EXPECT_EQ(sent, "abcd");
  EXPECT_EQ(queue.Take(&taken), HttpSendQueue::Taken::kBytes);
  EXPECT_EQ(taken, "h");
  EXPECT_EQ(queue.Take(&taken), HttpSendQueue::Taken::kNothing);
  EXPECT_EQ(add("i"), HttpSendQueue::Added::kQueued);
  EXPECT_EQ(sent, "abcdi");
  EXPECT_EQ(wakes, 1);
}

TEST(HttpStream, KeepsTheOrderOfWhatIsSentAtOnceAndWhatWaits) {
  HttpServerOptions options;
  options.limits.max_buffered_bytes = 64 << 10;
  HttpInbox inbox;
  const auto server = StartHttp(options, inbox.Handler());
  HttpTestClient client(server->port(), 4096);
  client.Send(kGet);
  std::string expected;
  for (int i = 0; i < 1'000'000; ++i) expected += std::to_string(i) + "\n";
  std::thread worker([&, exchange = inbox.TakeOne()] {
    EXPECT_TRUE(exchange->BeginStream(200, {}));
    for (size_t begin = 0, size = 1; begin < expected.size(); begin += size, size = size % 300 + 7) {
      EXPECT_TRUE(exchange->WriteChunk(std::string_view(expected).substr(begin, size)));
    }
    EXPECT_TRUE(exchange->EndStream());
  });
  EXPECT_TRUE(client.Read().body() == expected);
  worker.join();
}

// A stream that has begun, of a server that buffers 16 KiB, to a client with little room of its own.
struct NarrowStream {
  explicit NarrowStream(milliseconds write_timeout)
      : server(StartHttp(Options(write_timeout), inbox.Handler())), client(server->port(), 4096) {
    client.Send(kGet);
    exchange = inbox.TakeOne();
    EXPECT_TRUE(exchange->BeginStream(200, kEventStream));
  }

  static HttpServerOptions Options(milliseconds write_timeout) {
    HttpServerOptions options;
    options.limits.max_buffered_bytes = 16 << 10;
    options.limits.write_timeout = write_timeout;
    return options;
  }

  HttpInbox inbox;
  std::unique_ptr<HttpServer> server;
  HttpTestClient client;
  std::shared_ptr<HttpExchange> exchange;
};

TEST(HttpStream, HasRoomUntilItsClientDoesNotRead) {
  NarrowStream stream(std::chrono::hours(1));  // who waits here has failed
  const auto& exchange = stream.exchange;
  const std::string text(1000, 'x');
  uint64_t sent_bytes = 0;
  for (; exchange->HasRoom(text.size()); sent_bytes += text.size()) EXPECT_TRUE(exchange->WriteChunk(text));
  EXPECT_GT(sent_bytes, uint64_t{15'000});
  std::thread reader([&] { EXPECT_EQ(stream.client.Read().body().size(), sent_bytes); });
  WaitUntil([&] { return exchange->HasRoom(text.size()); });
  EXPECT_TRUE(exchange->EndStream());
  reader.join();
}

TEST(HttpStream, GivesUpClientThatDoesNotRead) {
  const NarrowStream stream(milliseconds(100));
  const auto& exchange = stream.exchange;
  const std::string text(1000, 'x');
  uint64_t taken_bytes = 0;
  while (exchange->WriteChunk(text)) taken_bytes += text.size();
  EXPECT_LT(taken_bytes, uint64_t{32} << 20);  // what the system itself buffers for a connection, and 16 KiB
  EXPECT_TRUE(exchange->is_gone());
  EXPECT_EQ(stream.server->Stats().slow_clients, 1u);
  WaitUntil([&] { return stream.server->Stats().open_connections == 0; });
}

TEST(HttpStream, GivesUpClientThatDoesNotReadItsReply) {
  HttpServerOptions options;
  options.limits.write_timeout = milliseconds(100);
  HttpInbox inbox;
  const auto server = StartHttp(options, inbox.Handler());
  HttpTestClient client(server->port(), 4096);
  client.Send(kGet);
  EXPECT_TRUE(inbox.TakeOne()->Reply(200, {}, std::string(100'000'000, 'x')));
  WaitUntil([&] { return server->Stats().open_connections == 0; });
  EXPECT_EQ(server->Stats().slow_clients, 1u);
}

TEST(HttpStream, NoticesClientThatLeavesWhileItsAnswerIsComputed) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  for (const bool is_reset : {false, true}) {
    HttpTestClient client(server->port());
    client.Send(kGet);
    const auto exchange = inbox.TakeOne();
    EXPECT_FALSE(exchange->is_gone());
    if (is_reset) {
      client.Reset();
    } else {
      client.FinishSending();
    }
    WaitUntil([&] { return exchange->gone().load(); });
    EXPECT_FALSE(exchange->Reply(200, {}, "too late"));
  }
  WaitUntil([&] { return server->Stats().open_connections == 0; });
  EXPECT_EQ(server->Stats().disconnects, 2u);
}

TEST(HttpStream, NoticesClientThatLeavesAfterSendingAhead) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(std::string(kGet) + kGet);
  const auto exchange = inbox.TakeOne();
  client.Reset();
  WaitUntil([&] { return exchange->is_gone(); });
  EXPECT_FALSE(exchange->BeginStream(200, {}));
}

TEST(HttpStream, WakesWriterWhoseClientLeaves) {
  HttpServerOptions options;
  options.limits.write_timeout = std::chrono::hours(1);
  HttpInbox inbox;
  const auto server = StartHttp(options, inbox.Handler());
  HttpTestClient client(server->port(), 4096);
  client.Send(kGet);
  const auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, {}));
  std::thread worker([&] {
    while (exchange->WriteChunk(std::string(100'000, 'x'))) {
    }
  });
  client.Reset();
  worker.join();
  EXPECT_TRUE(exchange->is_gone());
}

// One client of many: reads a whole answer on an io context that all share.
struct ManyClient {
  explicit ManyClient(asio::io_context* io) : socket(*io) {}

  void Start(uint16_t port, int id) {
    request = "GET /" + std::to_string(id) + " HTTP/1.1\r\nHost: test\r\n\r\n";
    const asio::ip::tcp::endpoint server(asio::ip::make_address("127.0.0.1"), port);
    socket.async_connect(server, [this](boost::system::error_code error) {
      if (error) return;
      asio::async_write(socket, asio::buffer(request), [this](boost::system::error_code write_error, size_t) {
        if (write_error) return;
        http::async_read(socket, buffer, response, [this](boost::system::error_code read_error, size_t) {
          is_complete = !read_error;
        });
      });
    });
  }

  asio::ip::tcp::socket socket;
  std::string request;
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  bool is_complete = false;
};

std::string EventText(const std::string& path, int event) {
  return "data: " + path + " event " + std::to_string(event) + "\n\n";
}

void WriteManyStreams(const std::vector<std::shared_ptr<HttpExchange>>& all, size_t begin, size_t end,
                      int events) {
  for (size_t i = begin; i < end; ++i) all[i]->BeginStream(200, kEventStream);
  for (int event = 0; event < events; ++event) {
    for (size_t i = begin; i < end; ++i) all[i]->WriteChunk(EventText(all[i]->request().path, event));
  }
  for (size_t i = begin; i < end; ++i) all[i]->EndStream();
}

TEST(HttpStream, FinishesFiveHundredAtOnce) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);
  constexpr int kClients = 500, kEvents = 40, kWorkers = 4;
  for (const int io_threads : {1, 2}) {
    HttpServerOptions options;
    options.io_threads = io_threads;
    HttpInbox inbox;
    const auto server = StartHttp(options, inbox.Handler());
    asio::io_context io;
    std::vector<std::unique_ptr<ManyClient>> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(std::make_unique<ManyClient>(&io));
      clients.back()->Start(server->port(), i);
    }
    std::thread reader([&] { io.run(); });
    const auto exchanges = inbox.Take(kClients);
    std::vector<std::thread> workers;
    for (size_t w = 0; w < kWorkers; ++w) {
      workers.emplace_back(WriteManyStreams, std::cref(exchanges), w * kClients / kWorkers,
                           (w + 1) * kClients / kWorkers, kEvents);
    }
    for (std::thread& worker : workers) worker.join();
    reader.join();
    for (int i = 0; i < kClients; ++i) {
      const ManyClient& client = *clients[static_cast<size_t>(i)];
      std::string expected;
      for (int event = 0; event < kEvents; ++event) expected += EventText("/" + std::to_string(i), event);
      ASSERT_TRUE(client.is_complete) << i;
      ASSERT_EQ(client.response.body(), expected);
    }
    EXPECT_EQ(server->Stats().requests, uint64_t{kClients});
  }
}

TEST(HttpStop, LetsOpenAnswersFinish) {
  HttpInbox inbox;
  const auto server = StartHttp({}, inbox.Handler());
  HttpTestClient idle(server->port()), busy(server->port()), streaming(server->port());
  busy.Send(kGet);
  auto computing = inbox.TakeOne();
  streaming.Send(kGet);
  auto stream = inbox.TakeOne();
  EXPECT_TRUE(stream->BeginStream(200, {}));
  server->StopAccepting();
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_THROW(HttpTestClient late(server->port()), boost::system::system_error);
  EXPECT_TRUE(computing->Reply(200, {}, "still here"));
  const auto response = busy.Read();
  EXPECT_EQ(response.body(), "still here");
  EXPECT_FALSE(response.keep_alive());
  EXPECT_TRUE(stream->WriteChunk("to the end"));
  EXPECT_TRUE(stream->EndStream());
  EXPECT_EQ(streaming.Read().body(), "to the end");
  busy.ReadToEnd();
  busy.Reset();
  streaming.Reset();
  server->Stop(std::chrono::hours(1));
  EXPECT_EQ(server->Stats().open_connections, 0u);
  EXPECT_EQ(server->Stats().disconnects, 0u);
}

TEST(HttpStop, BreaksOffStreamsAfterTheGrace) {
  HttpInbox inbox;
  auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(kGet);
  const auto exchange = inbox.TakeOne();
  EXPECT_TRUE(exchange->BeginStream(200, {}));
  std::atomic<bool> has_written = false;
  std::thread worker([&] {
    while (exchange->WriteChunk("data: x\n\n")) has_written = true;
  });
  std::thread reader([&] { EXPECT_THAT(client.ReadToEnd(), Not(EndsWith("0\r\n\r\n"))); });
  WaitUntil([&] { return has_written.load(); });
  server->Stop(milliseconds(10));
  worker.join();
  reader.join();
  EXPECT_TRUE(exchange->is_gone());
  server.reset();
  EXPECT_FALSE(exchange->WriteChunk("nobody"));
}

TEST(HttpStop, LeavesExchangesThatOutliveTheServerUsable) {
  HttpInbox inbox;
  auto server = StartHttp({}, inbox.Handler());
  HttpTestClient client(server->port());
  client.Send(kGet);
  auto exchange = inbox.TakeOne();
  server.reset();
  EXPECT_TRUE(exchange->is_gone());
  EXPECT_EQ(exchange->request().path, "/");
  EXPECT_FALSE(exchange->Reply(200, {}, "nobody"));
  exchange.reset();
}

}  // namespace
}  // namespace emberkv
