#include "cli/page_heads.h"

#include <unistd.h>

#include <cstring>
#include <utility>

namespace emberkv {

PageHeads::PageHeads(const std::string& directory, const LocalStore& store)
    : io_(MakeSegmentIo()), files_(directory, store.segment_bytes(), io_.get()) {}

Result<PageHead> PageHeads::Read(const StoreIndex::KeyedEntry& page) {
  const auto& [key, entry] = page;
  files_.Adopt(entry.place.segment, entry.place.generation);
  EMBERKV_ASSIGN_OR_RETURN(const SegmentFiles::Readers readers,
                           files_.Pin(entry.place.segment, entry.place.generation));
  std::vector<uint8_t> bytes(RecordHeadBytes(entry.num_tokens));
  const ssize_t got =
      ::pread(readers.cached, bytes.data(), bytes.size(), static_cast<off_t>(entry.place.offset()));
  files_.Unpin(entry.place.segment);
  if (got != static_cast<ssize_t>(bytes.size())) return DataLoss("the page's head cannot be read");

  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  PageHead head{header.parent, {header.replayed_at}, std::vector<int32_t>(entry.num_tokens)};
  std::memcpy(head.tokens.data(), bytes.data() + sizeof header,
              head.tokens.size() * sizeof(int32_t));
  if (HashBlock(head.parent, head.provenance, head.tokens) == key) return head;
  return DataLoss("the page's head does not belong to its key");
}

}  // namespace emberkv
