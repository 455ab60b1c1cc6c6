#include "store/kv_store.h"

namespace emberkv {

const char* PutOutcomeName(PutOutcome outcome) {
  switch (outcome) {
    case PutOutcome::kStored:
      return "stored";
    case PutOutcome::kAlreadyThere:
      return "already there";
    case PutOutcome::kRefusedFull:
      return "refused: full";
    case PutOutcome::kRefusedTenantFull:
      return "refused: tenant full";
    case PutOutcome::kRefusedTooLarge:
      return "refused: too large";
    case PutOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

const char* GetOutcomeName(GetOutcome outcome) {
  switch (outcome) {
    case GetOutcome::kHit:
      return "hit";
    case GetOutcome::kNeverSeen:
      return "never seen";
    case GetOutcome::kExpired:
      return "expired";
    case GetOutcome::kRefused:
      return "refused";
    case GetOutcome::kCorrupt:
      return "corrupt";
    case GetOutcome::kQuarantined:
      return "quarantined";
    case GetOutcome::kTimeout:
      return "timeout";
    case GetOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

bool KeyMatchesParts(const PageRecord& record) {
  return record.key == HashBlock(record.parent, record.provenance, record.tokens);
}

bool KeyMatchesParts(const GetRequest& request) {
  return request.key == HashBlock(request.parent, request.provenance, request.tokens);
}

}  // namespace emberkv
