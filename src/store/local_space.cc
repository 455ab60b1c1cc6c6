// LocalStore's space: where the next record goes, and how room is made without breaking a promise.
#include <algorithm>
#include <limits>
#include <utility>

#include "store/local_store.h"

namespace emberkv {
namespace {

// Left for compaction, which needs somewhere to write before it frees anything.
constexpr size_t kReservedSegments = 1;
// Sweep makes room ahead of need while fewer than one in so many segments are free.
constexpr uint64_t kSegmentsPerFree = 16;
// Records read before they are written elsewhere.
constexpr uint64_t kMoveBytes = uint64_t{8} << 20;

}  // namespace

// Whether nobody writes to the segment, is about to index what was written there, or reads from it.
bool LocalStore::IsAtRest(uint32_t segment) const {
  return !(next_ && next_->segment == segment) && !unsettled_.contains(segment) && !files_.IsPinned(segment);
}

std::optional<uint32_t> LocalStore::FreeSegment() const {
  for (const auto& [id, segment] : book_.segments()) {
    if (segment.pages() == 0 && IsAtRest(id)) return id;
  }
  return std::nullopt;
}

size_t LocalStore::FreeSegments() const {
  size_t count = max_segments_ - std::min<uint64_t>(max_segments_, book_.segments().size());
  for (const auto& [id, segment] : book_.segments()) count += segment.pages() == 0 && IsAtRest(id);
  return count;
}

std::optional<uint32_t> LocalStore::ExpiredSegment() const {
  const int64_t now_us = time_.NowMicros();
  std::optional<uint32_t> oldest;
  int64_t oldest_us = std::numeric_limits<int64_t>::max();
  for (const auto& [id, segment] : book_.segments()) {
    if (segment.pages() == 0 || !IsAtRest(id) || segment.last_deadline_us() > now_us) continue;
    if (segment.last_deadline_us() >= oldest_us) continue;
    oldest_us = segment.last_deadline_us();
    oldest = id;
  }
  return oldest;
}

// The segment that is cheapest to compact, if what must be moved is at most half of it and affordable.
std::optional<uint32_t> LocalStore::MostlyDeadSegment() const {
  const int64_t now_us = time_.NowMicros();
  std::optional<uint32_t> cheapest;
  uint64_t least_bytes = std::min(segment_bytes_ / 2, compaction_credit_bytes_) + 1;
  for (const auto& [id, segment] : book_.segments()) {
    const uint64_t promised_bytes = segment.PromisedAt(now_us).bytes;
    if (!IsAtRest(id) || segment.pages() == 0 || promised_bytes >= least_bytes) continue;
    least_bytes = promised_bytes;
    cheapest = id;
  }
  return cheapest;
}

LocalStore::Room LocalStore::Place(uint64_t record_bytes, Purpose purpose, RecordPlace* place) {
  const auto slots = static_cast<uint32_t>(record_bytes / kSlotBytes);
  const auto slots_of_segment = static_cast<uint32_t>(segment_bytes_ / kSlotBytes);
  while (!next_ || next_->slot + slots > slots_of_segment) {
    const Room room = OpenSegment(purpose);
    if (room != Room::kThere) return room;
  }
  *place = *next_;
  next_->slot += slots;
  unsettled_.insert(place->segment);
  return Room::kThere;
}

// Moves next_ to a segment with space, or, after compaction, leaves it at the one that has some left.
LocalStore::Room LocalStore::OpenSegment(Purpose purpose) {
  std::optional<uint32_t> free, expired, mostly_dead;
  size_t num_free = 0;
  bool may_create = false;
  const size_t reserved = purpose == Purpose::kNewPage ? kReservedSegments : 0;
  {
    const std::lock_guard lock(book_mutex_);
    free = FreeSegment();
    num_free = FreeSegments();
    may_create = book_.segments().size() < max_segments_;
    expired = ExpiredSegment();
    mostly_dead = MostlyDeadSegment();
  }
  if (index_->DiskBytes() > index_reserve_bytes_) return Room::kFull;
  if (num_free > reserved) {
    if (free && StartSegment(*free) == Room::kThere) return Room::kThere;
    if (may_create && CreateSegment() == Room::kThere) return Room::kThere;
    // A disk that is fuller than the budget: what is there already can still be used again.
  }
  if (expired) {
    uint64_t pages = 0;
    return Empty(*expired, &pages) ? StartSegment(*expired) : Room::kFailed;
  }
  if (purpose == Purpose::kNewPage && mostly_dead && num_free >= reserved) {
    return Compact(*mostly_dead) ? Room::kThere : Room::kFailed;
  }
  return num_free > reserved ? Room::kFailed : Room::kFull;
}

void LocalStore::FillFromTheBeginning(uint32_t segment) {
  unwritten_.erase(segment);
  next_ = {.segment = segment, .slot = 0, .generation = book_.segments().at(segment).generation};
}

// A segment without pages becomes current, in a generation of its own, unless somebody still reads from it.
LocalStore::Room LocalStore::StartSegment(uint32_t segment) {
  const std::lock_guard lock(book_mutex_);
  if (unwritten_.contains(segment)) {
    FillFromTheBeginning(segment);
    return Room::kThere;
  }
  const uint64_t generation = book_.segments().at(segment).generation + 1;
  BookEdit edit(&book_);
  edit.StartGeneration(segment, generation);
  At("segment.before_index");
  if (!Commit(edit).ok()) return Room::kFailed;
  At("segment.after_index");
  files_.SetGeneration(segment, generation);
  if (files_.IsPinned(segment)) return Room::kFull;
  FillFromTheBeginning(segment);
  return Room::kThere;
}

LocalStore::Room LocalStore::CreateSegment() {
  uint32_t segment = 1;
  {
    const std::lock_guard lock(book_mutex_);
    while (book_.segments().contains(segment)) ++segment;
  }
  At("segment.before_create");
  if (!files_.Create(segment).ok()) return Room::kFailed;
  At("segment.after_create");
  const std::lock_guard lock(book_mutex_);
  BookEdit edit(&book_);
  edit.StartGeneration(segment, 1);
  if (!Commit(edit).ok()) {
    (void)files_.Remove(segment);
    return Room::kFailed;
  }
  At("segment.after_index");
  FillFromTheBeginning(segment);
  return Room::kThere;
}

void LocalStore::CountEvicted(std::span<const StoreIndex::KeyedEntry> pages) {
  const int64_t now_us = time_.NowMicros();
  const std::lock_guard lock(tally_mutex_);
  for (const auto& [key, entry] : pages) {
    ++(entry.deadline_us <= now_us ? counters_.evicted_expired : counters_.evicted_before_deadline);
  }
}

// Removes the pages of a segment at rest that has no promised ones.
bool LocalStore::Empty(uint32_t segment, uint64_t* num_pages) {
  const std::lock_guard lock(book_mutex_);
  // A hit may have extended a page since the segment was chosen.
  if (book_.segments().at(segment).PromisedAt(time_.NowMicros()).pages > 0) return false;
  const auto pages = index_->PagesOfSegment(segment);
  if (!pages.ok()) return false;
  const uint64_t generation = book_.segments().at(segment).generation + 1;
  BookEdit edit(&book_);
  for (const auto& [key, entry] : *pages) edit.RemovePage(key, entry, GetOutcome::kExpired);
  edit.StartGeneration(segment, generation);
  At("empty.before_index");
  if (!Commit(edit).ok()) return false;
  At("empty.after_index");
  files_.SetGeneration(segment, generation);
  if (!files_.IsPinned(segment)) unwritten_.insert(segment);
  CountEvicted(*pages);
  *num_pages = pages->size();
  return true;
}

// Removes the expired pages of a segment that holds promised ones too.
uint64_t LocalStore::DropExpired(uint32_t segment) {
  const std::lock_guard lock(book_mutex_);
  auto pages = index_->PagesOfSegment(segment);
  if (!pages.ok()) return 0;
  const int64_t now_us = time_.NowMicros();
  std::erase_if(*pages, [&](const auto& page) { return page.second.deadline_us > now_us; });
  BookEdit edit(&book_);
  for (const auto& [key, entry] : *pages) edit.RemovePage(key, entry, GetOutcome::kExpired);
  if (edit.is_empty()) return 0;
  At("expire.before_index");
  if (!Commit(edit).ok()) return 0;
  At("expire.after_index");
  CountEvicted(*pages);
  return pages->size();
}

// Moves a segment's promised pages elsewhere and empties it.
bool LocalStore::Compact(uint32_t segment) {
  std::vector<StoreIndex::KeyedEntry> pages;
  {
    const std::lock_guard lock(book_mutex_);
    auto found = index_->PagesOfSegment(segment);
    if (!found.ok()) return false;
    pages = std::move(found).value();
  }
  const int64_t now_us = time_.NowMicros();
  std::erase_if(pages, [&](const auto& page) { return page.second.deadline_us <= now_us; });
  std::span<const StoreIndex::KeyedEntry> rest = pages;
  while (!rest.empty()) {
    size_t count = 0;
    for (uint64_t bytes = 0; count < rest.size() && bytes < kMoveBytes; ++count) {
      bytes += rest[count].second.record_bytes();
    }
    if (!MovePages(rest.first(count))) return false;
    rest = rest.subspan(count);
  }
  uint64_t expired_pages = 0;
  return Empty(segment, &expired_pages);
}

bool LocalStore::MovePages(std::span<const StoreIndex::KeyedEntry> pages) {
  std::vector<std::vector<uint8_t>> records;
  std::vector<ParsedRecord> parsed;
  std::vector<StoreIndex::KeyedEntry> from, corrupt;
  for (const auto& [key, entry] : pages) {
    Result<std::vector<uint8_t>> record = ReadRecord(entry, false);
    if (!record.ok()) return false;
    Result<ParsedRecord> sound = ParseRecord(*record, entry.place);
    if (!sound.ok() || sound->page.key != key) {
      corrupt.emplace_back(key, entry);
      continue;
    }
    records.push_back(std::move(record).value());  // moving a vector leaves its bytes where they are
    parsed.push_back(std::move(sound).value());
    from.emplace_back(key, entry);
  }
  Quarantine(corrupt);
  std::vector<RecordWrite> writes;
  for (const ParsedRecord& record : parsed) {
    RecordWrite write{.page = record.page, .place = {}, .status = {}};
    if (Place(write.record_bytes(), Purpose::kCompaction, &write.place) != Room::kThere) return false;
    writes.push_back(write);
    compaction_credit_bytes_ -= std::min(compaction_credit_bytes_, write.record_bytes());
  }
  const auto group = writer_.Start(writes, "compact");
  writer_.Finish({&group, 1});
  return CommitMoves(writes, from);
}

bool LocalStore::CommitMoves(std::span<const RecordWrite> writes,
                             std::span<const StoreIndex::KeyedEntry> from) {
  const std::lock_guard lock(book_mutex_);
  std::vector<BlockHash> keys;
  for (const auto& [key, entry] : from) keys.push_back(key);
  const std::vector<std::optional<PageEntry>> now = index_->Find(keys);
  BookEdit edit(&book_);
  bool is_sound = true;
  for (size_t i = 0; i < writes.size(); ++i) {
    is_sound = is_sound && writes[i].status.ok();
    // Extended meanwhile: its deadline moves with it. Quarantined meanwhile: it is not there any more.
    if (now[i] && now[i]->place == from[i].second.place) {
      edit.MovePage(keys[i], *now[i], writes[i].place);
    }
  }
  if (!is_sound) next_.reset();
  if (!is_sound || edit.is_empty()) return is_sound;
  const bool is_committed = Commit(edit).ok();
  At("compact.after_index");
  if (!is_committed) next_.reset();
  return is_committed;
}

// Forgets segments whose files were deleted from outside: what they held is lost, their space is not used.
Status LocalStore::DropMissingFiles() {
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<uint32_t> files, files_.List());
  const std::set<uint32_t> there(files.begin(), files.end());
  std::vector<uint32_t> missing;
  for (const auto& [id, segment] : book_.segments()) {
    if (!there.contains(id)) missing.push_back(id);
  }
  for (const uint32_t segment : missing) {
    EMBERKV_ASSIGN_OR_RETURN(const auto pages, index_->PagesOfSegment(segment));
    BookEdit edit(&book_);
    for (const auto& [key, entry] : pages) edit.RemovePage(key, entry);
    edit.RemoveSegment(segment);
    EMBERKV_RETURN_IF_ERROR(Commit(edit));
    (void)files_.Remove(segment);
    unwritten_.erase(segment);
    if (next_ && next_->segment == segment) next_.reset();
  }
  return Status::Ok();
}

// Gives free segments beyond the budget back to the file system.
Status LocalStore::FitBudget() {
  while (book_.segments().size() > max_segments_) {
    const std::optional<uint32_t> free = FreeSegment();
    if (!free) break;
    BookEdit edit(&book_);
    edit.RemoveSegment(*free);
    EMBERKV_RETURN_IF_ERROR(Commit(edit));
    unwritten_.erase(*free);
    if (!files_.Remove(*free)) break;
  }
  return Status::Ok();
}

uint64_t LocalStore::Sweep() {
  const std::lock_guard lock(append_mutex_);
  uint64_t swept = 0;
  std::vector<uint32_t> expired, partly_expired;
  bool is_short = false;
  {
    const std::lock_guard book_lock(book_mutex_);
    if (lock_.is_in_place()) (void)DropMissingFiles();
    CommitWhatIsDue();
    const int64_t now_us = time_.NowMicros();
    for (const auto& [id, segment] : book_.segments()) {
      const uint64_t promised_pages = segment.PromisedAt(now_us).pages;
      if (promised_pages == segment.pages()) continue;
      (promised_pages == 0 && IsAtRest(id) ? expired : partly_expired).push_back(id);
    }
  }
  for (const uint32_t segment : expired) {
    uint64_t pages = 0;
    (void)Empty(segment, &pages);
    swept += pages;
  }
  for (const uint32_t segment : partly_expired) swept += DropExpired(segment);

  std::optional<uint32_t> mostly_dead;
  {
    const std::lock_guard book_lock(book_mutex_);
    is_short = FreeSegments() < kReservedSegments + max_segments_ / kSegmentsPerFree;
    if (FreeSegments() >= kReservedSegments) mostly_dead = MostlyDeadSegment();
  }
  if (is_short && mostly_dead) (void)Compact(*mostly_dead);
  unsettled_.clear();
  return swept;
}

}  // namespace emberkv
