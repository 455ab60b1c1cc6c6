#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/ssl.hpp>

#include "server/http_server.h"
#include "server/http_test_client.h"

namespace emberkv {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using testing::HasSubstr;

// A folder with a self-signed certificate for "localhost" and its key, gone at the end of the test.
class HttpTls : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / ("emberkv_tls_" + std::string(test->name()));
    std::filesystem::create_directories(folder_);
    WriteCertificate("certificate.pem", "key.pem");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  void WriteCertificate(const std::string& certificate_name, const std::string& key_name) const {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
    ASSERT_NE(key, nullptr);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    const auto* host = reinterpret_cast<const unsigned char*>("localhost");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    FILE* file = std::fopen(Path(certificate_name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    PEM_write_X509(file, certificate.get());
    std::fclose(file);
    file = std::fopen(Path(key_name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }

  HttpServerOptions TlsOptions() const {
    HttpServerOptions options;
    options.tls_certificate_file = Path("certificate.pem");
    options.tls_key_file = Path("key.pem");
    return options;
  }

  std::filesystem::path folder_;
};

class TlsClient {
 public:
  TlsClient(uint16_t port, const std::string& trusted) : context_(asio::ssl::context::tls_client) {
    context_.load_verify_file(trusted);
    context_.set_verify_mode(asio::ssl::verify_peer);
    stream_.emplace(io_, context_);
    stream_->next_layer().connect({asio::ip::make_address("127.0.0.1"), port});
    stream_->handshake(asio::ssl::stream_base::client);
  }

  http::response<http::string_body> Get(const std::string& target) {
    const std::string request = "GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n";
    asio::write(*stream_, asio::buffer(request));
    http::response<http::string_body> response;
    http::read(*stream_, buffer_, response);
    return response;
  }

  // The error with which the server's side ends: eof only after a close_notify.
  boost::system::error_code ReadEnd() {
    boost::system::error_code error;
    char byte = 0;
    stream_->read_some(asio::buffer(&byte, 1), error);
    return error;
  }

 private:
  asio::io_context io_;
  asio::ssl::context context_;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket>> stream_;
  boost::beast::flat_buffer buffer_;
};

TEST_F(HttpTls, AnswersAndStreams) {
  const auto server = StartHttp(TlsOptions(), [](const HttpRequest& request,
                                                 const std::shared_ptr<HttpExchange>& exchange) {
    if (request.path == "/plain") return AnswerEcho(request, exchange);
    exchange->BeginStream(200, {});
    exchange->WriteChunk("one ");
    exchange->WriteChunk("two");
    exchange->EndStream();
  });
  TlsClient client(server->port(), Path("certificate.pem"));
  EXPECT_EQ(client.Get("/plain").body(), "GET /plain? ");
  EXPECT_EQ(client.Get("/stream").body(), "one two");
}

TEST_F(HttpTls, SaysGoodbyeProperly) {
  HttpInbox inbox;
  const auto server = StartHttp(TlsOptions(), inbox.Handler());
  TlsClient client(server->port(), Path("certificate.pem"));
  std::thread worker([&] {
    const auto exchange = inbox.TakeOne();
    server->StopAccepting();
    exchange->Reply(200, {}, "the last");
  });
  EXPECT_FALSE(client.Get("/").keep_alive());
  worker.join();
  EXPECT_EQ(client.ReadEnd(), asio::error::eof);
}

TEST_F(HttpTls, NoticesClientThatLeaves) {
  HttpInbox inbox;
  const auto server = StartHttp(TlsOptions(), inbox.Handler());
  std::shared_ptr<HttpExchange> exchange;
  {
    asio::io_context io;
    asio::ssl::context context(asio::ssl::context::tls_client);
    asio::ssl::stream<asio::ip::tcp::socket> stream(io, context);
    stream.next_layer().connect({asio::ip::make_address("127.0.0.1"), server->port()});
    stream.handshake(asio::ssl::stream_base::client);
    asio::write(stream, asio::buffer(std::string("GET / HTTP/1.1\r\nHost: test\r\n\r\n")));
    exchange = inbox.TakeOne();
    EXPECT_FALSE(exchange->is_gone());
  }
  WaitUntil([&] { return exchange->is_gone(); });
}

TEST_F(HttpTls, SurvivesClientsThatDoNotSpeakIt) {
  const auto server = StartHttp(TlsOptions(), AnswerEcho);
  HttpTestClient plain(server->port());
  plain.Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_THAT(plain.ReadToEnd(), Not(HasSubstr("HTTP/1.1 200")));
  EXPECT_EQ(TlsClient(server->port(), Path("certificate.pem")).Get("/x").body(), "GET /x? ");
}

TEST_F(HttpTls, SaysWhatIsWrongWithItsFiles) {
  WriteCertificate("other_certificate.pem", "other_key.pem");
  const auto message_of = [&](const std::string& certificate, const std::string& key) {
    HttpServerOptions options;
    options.tls_certificate_file = certificate;
    options.tls_key_file = key;
    const auto server = HttpServer::Start(options, AnswerEcho);
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
    return server.status().message();
  };
  const std::string certificate = Path("certificate.pem");
  EXPECT_EQ(message_of(certificate, ""), "TLS needs both a certificate file and a key file");
  EXPECT_THAT(message_of(Path("missing.pem"), Path("key.pem")),
              HasSubstr("TLS certificate '" + Path("missing.pem")));
  EXPECT_THAT(message_of(certificate, certificate), HasSubstr("TLS key '" + certificate));
  EXPECT_THAT(message_of(certificate, Path("other_key.pem")),
              HasSubstr("other_key.pem': key values mismatch"));
}

}  // namespace
}  // namespace emberkv
