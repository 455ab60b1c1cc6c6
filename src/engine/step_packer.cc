#include "engine/step_packer.h"

#include <algorithm>
#include <tuple>

namespace emberkv {
namespace {

constexpr int64_t kLongShare = 4;    // long spans have at least this part of a step
constexpr int64_t kOldestShare = 4;  // and the oldest of them this part of that

}  // namespace

std::vector<int64_t> StepPacker::Pack(std::span<const SpanWish> wishes) {
  std::vector<int64_t> granted(wishes.size());
  std::vector<Long> longs;
  int64_t singles = 0;
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i].rows > 1) {
      longs.push_back({i, wishes[i].served});
    } else if (singles < step_tokens_) {
      granted[i] = 1;
      ++singles;
    }
  }
  if (longs.empty()) {
    flow_served_.clear();  // nobody competes: old debts are forgotten
    return granted;
  }
  LevelNewFlows(wishes, longs);
  const int64_t rows = std::max({step_tokens_ - singles, step_tokens_ / kLongShare, int64_t{1}});
  ShareRows(wishes, std::move(longs), rows, &granted);
  return granted;
}

// A flow that is new starts level with the one served least: it has saved up nothing while it was away.
void StepPacker::LevelNewFlows(std::span<const SpanWish> wishes, const std::vector<Long>& longs) {
  int64_t least = INT64_MAX;
  for (const Long& span : longs) {
    const auto at = flow_served_.find(wishes[span.index].flow);
    if (at != flow_served_.end()) least = std::min(least, at->second);
  }
  for (const Long& span : longs) {
    flow_served_.try_emplace(wishes[span.index].flow, least == INT64_MAX ? 0 : least);
  }
}

void StepPacker::ShareRows(std::span<const SpanWish> wishes, std::vector<Long> longs, int64_t rows,
                           std::vector<int64_t>* granted) {
  const auto grant = [&](Long& span, int64_t at_most) {
    const SpanWish& wish = wishes[span.index];
    int64_t& so_far = (*granted)[span.index];
    const int64_t more = std::min({wish.rows - so_far, at_most, rows});
    so_far += more;
    span.served += more;
    flow_served_[wish.flow] += more;
    rows -= more;
  };
  grant(longs.front(), std::max<int64_t>(rows / kOldestShare, 1));
  while (rows > 0 && !longs.empty()) {
    const auto next = std::ranges::min_element(longs, {}, [&](const Long& span) {
      return std::tuple(flow_served_[wishes[span.index].flow], span.served, span.index);
    });
    grant(*next, rows);
    longs.erase(next);
  }
}

}  // namespace emberkv
