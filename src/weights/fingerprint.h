// What distinguishes one model's weights and config from all others: the `model` field of a cache
// identity, so that pages of other weights under the same name or path are never reused.
//
// A fingerprint depends on contents alone: the config's text and the shards' bytes, not where they
// lie, what they are called or when they were written. Computed anew at every start and kept
// nowhere, so it cannot go stale. Reads the checkpoint's mappings; called from the thread that may
// use `pool`. How much is read does not depend on the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/thread_pool.h"
#include "layout/identity.h"
#include "weights/checkpoint.h"

namespace emberkv {

// Over the config, every shard's length and header, and a sample of every tensor's bytes: all of a
// small tensor; of others the first, the last and evenly spaced pieces. Seconds for 96,085 tensors.
// Weights that were retrained, or quantised anew, differ in any sample; a checkpoint edited on
// purpose in a few places may not, which FullFingerprint shows.
Digest ModelFingerprint(const Checkpoint& checkpoint, std::string_view config_text,
                        ThreadPool& pool);

// Over every byte. Reads at the disk's or the hash's speed: minutes for a released model.
// `progress` is called with the bytes hashed so far, from any thread of the pool, one call at a
// time.
Digest FullFingerprint(const Checkpoint& checkpoint, std::string_view config_text, ThreadPool& pool,
                       const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace emberkv
