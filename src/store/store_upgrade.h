// Brings a store of an earlier version to this one: once, when it is opened.
//
// Called by whoever opens a store, with the directory's lock held and before anything else uses the index.
#pragma once

#include <string>

#include "base/status.h"
#include "store/record_writer.h"
#include "store/store_format.h"
#include "store/store_index.h"

namespace emberkv {

// Version 1 kept no sums of tenants: all pages are gone through, once. `format` is what the store has, and
// will have. Interrupted, it starts over when the store is next opened.
Status UpgradeStore(const std::string& directory, StoreIndex* index, const Failpoint& failpoint,
                    StoreFormat* format);

}  // namespace emberkv
