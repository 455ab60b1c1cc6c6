// What stored pages say of themselves beyond the index: the text they continue and the tokens they
// hold.
//
// Used by one thread, beside the open store whose pages it reads: the store's lock keeps other
// processes from writing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/local_store.h"

namespace emberkv {

struct PageHead {
  BlockHash parent;
  Provenance provenance;
  std::vector<int32_t> tokens;
};

class PageHeads {
 public:
  PageHeads(const std::string& directory, const LocalStore& store);

  // Reads no payload: a head is sound when the page's key is the hash of its parts.
  Result<PageHead> Read(const StoreIndex::KeyedEntry& page);

 private:
  const std::unique_ptr<SegmentIo> io_;
  SegmentFiles files_;
};

}  // namespace emberkv
