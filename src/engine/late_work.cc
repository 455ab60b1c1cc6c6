#include "engine/late_work.h"

#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace emberkv {

bool FinishBy(std::chrono::steady_clock::time_point deadline, std::function<void()> work) {
  const auto given = std::make_shared<std::function<void()>>(std::move(work));
  const auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  const auto run = [given, ended] {
    {
      const std::function<void()> taken = std::move(*given);
      taken();
    }
    ended->set_value();
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error&) {  // no thread to be had: better late than never
    run();
  }
  return end.wait_until(deadline) == std::future_status::ready;
}

}  // namespace emberkv
