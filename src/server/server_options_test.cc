#include "server/server_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

TEST(ServerOptions, OtherMachinesNeedKeys) {
  ServerOptions options;
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    options.host = host;
    EXPECT_TRUE(CheckServerOptions(options).ok()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "192.168.1.5", "::ffff:1.2.3.4"}) {
    options.host = host;
    options.keys_file.clear();
    EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("no keys file")) << host;
    options.keys_file = "keys.json";
    EXPECT_TRUE(CheckServerOptions(options).ok()) << host;
  }
}

TEST(ServerOptions, WhatIsNoAddressIsRefusedAlsoWithKeys) {
  ServerOptions options;
  options.keys_file = "keys.json";
  for (const char* host : {"", "example.org", "127.0.0", "localhost.evil.org"}) {
    options.host = host;
    EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("an IP address")) << host;
  }
}

TEST(ServerOptions, TlsNeedsBothFiles) {
  ServerOptions options;
  options.tls_key_file = "key.pem";
  EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("tls-cert and tls-key"));
  options.tls_certificate_file = "cert.pem";
  EXPECT_TRUE(CheckServerOptions(options).ok());
}

TEST(ServerOptions, BoundsAreNamedWithWhatWasFound) {
  ServerOptions options;
  options.max_running = 0;
  EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("max-running is 0; allowed: 1"));
  options.max_running = 1;
  options.max_queued = -1;
  EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("max-queued is -1"));
  options.max_queued = 0;
  options.max_body_bytes = 5;
  EXPECT_THAT(CheckServerOptions(options).message(), HasSubstr("max-body is 5"));
}

}  // namespace
}  // namespace emberkv
