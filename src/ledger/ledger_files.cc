#include "ledger/ledger_files.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "ledger/ledger_writer.h"
#include "ledger/line_reader.h"

namespace emberkv {
namespace {

using Identities = std::set<std::pair<dev_t, ino_t>>;

// The newest is opened first: a rotation meanwhile makes it appear again under another name, which
// its identity tells, and no file can slip through. After a crash in a rotation the newest is the
// first rotated one.
Status OpenWithRotated(const std::string& path, Identities* known, std::vector<LineReader>* open) {
  std::vector<LineReader> newest_first;
  Status missing;
  for (int number = 0;; ++number) {
    Result<LineReader> reader = LineReader::Open(number == 0 ? path : RotatedPath(path, number));
    if (!reader.ok()) {
      if (reader.status().code() != StatusCode::kNotFound) return reader.status();
      if (number > 0) break;
      missing = reader.status();
      continue;
    }
    if (number > 0) missing = Status::Ok();
    if (known->insert(reader->identity()).second) newest_first.push_back(std::move(reader).value());
  }
  for (auto reader = newest_first.rbegin(); reader != newest_first.rend(); ++reader) {
    open->push_back(std::move(*reader));
  }
  return missing;
}

Status ReadFile(LineReader& reader, const std::function<Status(const LedgerLine&)>& visit,
                LedgerReading* reading) {
  uint64_t lines = 0;
  uint64_t torn_lines = 0;
  std::string_view text;
  for (;;) {
    EMBERKV_ASSIGN_OR_RETURN(const bool has_line, reader.Next(&text));
    if (!has_line) break;
    Result<LedgerLine> line = ParseLedgerLine(text);
    if (line.status().code() == StatusCode::kDataLoss) {
      ++torn_lines;
      continue;
    }
    if (!line.ok()) return reader.AtLine(line.status());
    EMBERKV_RETURN_IF_ERROR(visit(*line));
    ++lines;
  }
  // One torn line alone is a ledger that crashed at its first.
  if (lines == 0 && torn_lines > 1) {
    return InvalidArgument(
        fmt::format("{} is no ledger: none of its lines is JSON", reader.path()));
  }
  ++reading->files;
  reading->lines += lines;
  reading->torn_lines += torn_lines;
  return Status::Ok();
}

}  // namespace

Result<LedgerReading> ReadLedgers(const std::vector<std::string>& paths,
                                  const std::function<Status(const LedgerLine&)>& visit) {
  Identities known;
  std::vector<LineReader> readers;
  for (const std::string& path : paths) {
    EMBERKV_RETURN_IF_ERROR(OpenWithRotated(path, &known, &readers));
  }
  LedgerReading reading;
  for (LineReader& reader : readers) {
    EMBERKV_RETURN_IF_ERROR(ReadFile(reader, visit, &reading));
  }
  return reading;
}

}  // namespace emberkv
