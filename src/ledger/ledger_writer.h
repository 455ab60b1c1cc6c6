// An append-only file of lines, rotated by size: the ledger, and the trace of a server.
//
// Any thread may append; each line is one write(2) under a mutex, so lines never mix, and what was
// appended survives the death of the process. Nothing is synced: a power cut may cost the last
// seconds. A disk that is full or broken stops nobody: lines are lost and counted, and each new
// line tries again. A line that was cut off, by a crash before or by a full disk now, is ended
// before the next one begins; readers count what is left of it (ledger/line_reader.h). The file
// belongs to one process at a time. A disk that hangs holds up whoever appends, so no thread that
// many wait for should.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

struct LedgerWriterOptions {
  uint64_t max_bytes = uint64_t{64} << 20;  // of a file; a longer line has a file of its own
  int keep_files = 16;                      // rotated files beside the one that is written
};

struct LedgerWriterStats {
  uint64_t lines_written = 0;
  uint64_t lines_lost = 0;
  uint64_t bytes_written = 0;
  uint64_t rotations = 0;
  std::string last_error;  // why a line was lost or a rotation failed; empty when none ever did
};

// ("a/ledger.jsonl", 2) -> "a/ledger.2.jsonl". The higher the number, the older.
std::string RotatedPath(const std::string& path, int number);

class LedgerWriter {
 public:
  // Makes the file where there is none; its folder must exist.
  static Result<std::unique_ptr<LedgerWriter>> Open(const std::string& path,
                                                    const LedgerWriterOptions& options = {});
  ~LedgerWriter();
  LedgerWriter(const LedgerWriter&) = delete;
  LedgerWriter& operator=(const LedgerWriter&) = delete;

  // `line`: JSON without a newline in it (LedgerJson, TraceJson).
  void Append(std::string_view line);

  LedgerWriterStats stats() const;

 private:
  LedgerWriter(std::string path, const LedgerWriterOptions& options);

  Status OpenFile();
  Status Rotate();

  const std::string path_;
  const LedgerWriterOptions options_;

  mutable std::mutex mutex_;
  int fd_ = -1;  // guarded by mutex_, as is all below
  uint64_t file_bytes_ = 0;
  bool ends_within_line_ = false;
  std::string buffer_;  // the line as it is written
  LedgerWriterStats stats_;
};

}  // namespace emberkv
