#include "cli/serve_command.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/duration.h"
#include "cli/config_file.h"
#include "cli/model_options.h"
#include "cli/parsed_option.h"
#include "cli/progress_line.h"
#include "cli/quantity.h"
#include "cli/serve_signals.h"
#include "server/server.h"
#include "server/tenants.h"

namespace emberkv {
namespace {

// For the store to take what is complete, though requests have used up the grace period. A store that takes
// longer is broken; what is not written by then is computed again another time.
constexpr std::chrono::seconds kLeastFlushTimeout{5};
// For all the connections that the server takes, and the store's files.
constexpr rlim_t kOpenFiles = 8192;

constexpr const char* kNotes =
    "Clients of the OpenAI and DeepSeek APIs use it unchanged: set their base URL to the address that\n"
    "is printed, with /v1. Every option may stand in a JSON file, by its name without dashes; the command\n"
    "line wins. SIGTERM and Ctrl-C admit nothing more, let requests finish for the grace period, store\n"
    "what is complete and end with 0; a second one ends at once. SIGHUP reads the keys again.\n"
    "Examples:\n"
    "  emberkv serve --model MODEL_DIR --store cache\n"
    "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Hello\", \"max_tokens\": 20}'\n"
    "  emberkv serve --config serve.json --port 8081\n"
    "  emberkv serve --model MODEL_DIR --store cache --keys keys.json --ledger ledger.jsonl \\\n"
    "    --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem";

struct ServeOptions {
  ModelOptions model;
  ServerOptions server;
  std::string config_file;
  std::chrono::microseconds grace = std::chrono::seconds(30);
};

std::shared_ptr<spdlog::logger> MakeLog() {
  auto log = std::make_shared<spdlog::logger>("emberkv", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l %v",
                                                                 spdlog::pattern_time_type::utc));
  log->flush_on(spdlog::level::info);
  return log;
}

// "models/ember-tiny/" is called ember-tiny.
std::string ModelNameOf(const std::string& model_dir) {
  std::error_code ignored;
  const std::filesystem::path dir = std::filesystem::weakly_canonical(model_dir, ignored);
  return dir.has_filename() ? dir.filename().string() : dir.parent_path().filename().string();
}

// What a shell or a service manager allows at first is often 1,024.
void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kOpenFiles) return;
  files.rlim_cur = std::min(files.rlim_max, kOpenFiles);
  (void)setrlimit(RLIMIT_NOFILE, &files);  // as many as there are, then
}

void ServeUntilStopped(const ServeOptions& options, const Engine& engine, Server* server,
                       ServeSignals* signals, spdlog::logger* log) {
  signals->Attend();
  fmt::print("emberkv serve: {} listens on {}\n", options.server.model_name, server->url());
  std::fflush(stdout);
  while (signals->Wait() == ServeSignals::Event::kReload) server->ReloadKeys();
  log->info("ending: nothing more is admitted, requests have {:.1f} s to finish",
            std::chrono::duration<double>(options.grace).count());
  const auto end = std::chrono::steady_clock::now() + options.grace;
  server->Drain(std::chrono::duration_cast<std::chrono::milliseconds>(options.grace));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (!engine.Flush(std::max<std::chrono::milliseconds>(left, kLeastFlushTimeout))) {
    log->warn("not persisted: {} pages; the store did not take them in time",
              engine.cache_stats().pages.writes.queued_pages);
  }
  log->info("ended");
}

Status Serve(ServeOptions options) {
  ServeSignals signals;
  RaiseFileLimit();
  const std::shared_ptr<spdlog::logger> log = MakeLog();
  if (options.server.model_name.empty())
    options.server.model_name = ModelNameOf(options.model.engine.model_dir);
  std::unique_ptr<Engine> engine;  // outlives the server
  // What can be refused is refused before the model is loaded.
  EMBERKV_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Open(options.server, log));
  ProgressLine progress;
  EMBERKV_ASSIGN_OR_RETURN(engine, LoadWithProgress(options.model, &progress));
  log->info("experts: {}", ExpertsText(engine->expert_stats()));
  EMBERKV_RETURN_IF_ERROR(server->Serve(engine.get()));
  ServeUntilStopped(options, *engine, server.get(), &signals, log.get());
  return Status::Ok();
}

int Run(ServeOptions* options, CLI::App* command) {
  if (!options->config_file.empty()) {
    // The options' targets are filled in like the command line's.
    const Status status = ApplyConfigFile(options->config_file, command);
    if (!status.ok()) throw CLI::ValidationError("--config", status.message());
  }
  if (options->model.engine.model_dir.empty()) throw CLI::RequiredError("--model");
  const Status status = Serve(*options);
  if (status.ok()) return 0;
  fmt::print(stderr, "emberkv serve: {}\n", status.message());
  return 1;
}

void AddEngineOptions(CLI::App& command, EngineOptions* engine) {
  command.add_option("--model", engine->model_dir, "Folder of the model");
  command.add_option("--threads", engine->num_threads, "Threads of the model (default: all cores)");
  command.add_option("--chunk", engine->prefill_chunk, "Tokens of one step, of all requests together")
      ->capture_default_str();
  AddParsedOption(command, "--context", &engine->max_context, &ParseTokens,
                  "Most tokens of a prompt and its answer, e.g. 32K (default: what the model allows)");
  AddParsedOption(command, "--kv-memory", &engine->kv_budget_bytes, &ParseBytes,
                  "Page pool for global KV, e.g. 4G (default: half of what is free beside the weights)");
  AddWeightMemoryOption(command, engine);
  AddCacheOptions(command, engine);
}

void AddServerOptions(CLI::App& command, ServerOptions* server) {
  command
      .add_option("--host", server->host, "Address to listen on; others than this machine's own need --keys")
      ->capture_default_str();
  command.add_option("--port", server->port, "Port to listen on; 0 takes any and prints it")
      ->capture_default_str();
  command.add_option("--tls-cert", server->tls_certificate_file, "Certificate chain (PEM); speaks TLS only");
  command.add_option("--tls-key", server->tls_key_file, "Private key of the certificate (PEM)");
  command.add_option("--model-name", server->model_name, "What clients call the model (default: its folder)");
  command.add_option("--keys", server->keys_file,
                     "Tenants and hashes of their keys (JSON; see `emberkv key`)");
  command.add_option("--ledger", server->ledger_file, "File to write a line of every request to");
  command.add_option("--trace-file", server->trace_file,
                     "File to write prompts' blocks to, for `emberkv simulate`");
  command.add_option("--prices", server->prices_file, "Price table (JSON; default: the published prices)");
  command.add_option("--max-running", server->max_running, "Requests that run at once")
      ->capture_default_str();
  command.add_option("--max-queued", server->max_queued, "Requests that wait; more get 503")
      ->capture_default_str();
  AddParsedOption(command, "--max-body", &server->max_body_bytes, &ParseBytes,
                  "Largest body of a request (default: 16M)");
}

Status MakeKey(const std::string& tenant) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string key, NewApiKey());
  const std::string entry = fmt::format(R"({{"name": "{}", "keys": ["{}"]}})", tenant, ApiKeyHash(key));
  EMBERKV_RETURN_IF_ERROR(TenantTable::Parse(fmt::format(R"({{"tenants": [{}]}})", entry)).status());
  fmt::print("key for the client, shown only now:\n  {}\nentry for \"tenants\" in the keys file:\n  {}\n",
             key, entry);
  return Status::Ok();
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model to many clients over HTTP");
  command->footer(kNotes);
  auto options = std::make_shared<ServeOptions>();
  AddEngineOptions(*command, &options->model.engine);
  AddServerOptions(*command, &options->server);
  AddParsedOption(*command, "--grace", &options->grace, &ParseDuration,
                  "How long requests may go on after SIGTERM (default: 30s)");
  command->add_option("--config", options->config_file, "JSON file with any of these options");
  command->callback([options, command, exit_code] { *exit_code = Run(options.get(), command); });
}

void AddKeyCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("key", "Make an API key for a tenant of `emberkv serve`");
  command->footer("Example:\n  emberkv key acme");
  auto tenant = std::make_shared<std::string>();
  command->add_option("TENANT", *tenant, "Name of the tenant")->required();
  command->callback([tenant, exit_code] {
    const Status status = MakeKey(*tenant);
    if (!status.ok()) fmt::print(stderr, "emberkv key: {}\n", status.message());
    *exit_code = status.ok() ? 0 : 1;
  });
}

}  // namespace emberkv
