// Statuses as bytes, and agreement on one verdict.
#include "launch/exchange.h"

#include <fmt/format.h>

#include <cstring>

namespace slipstream {

namespace {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
bool take(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

void put_text(std::string& bytes, const std::string& text) {
  put(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}

bool take_text(std::string_view& bytes, std::string& text) {
  std::uint32_t size = 0;
  if (!take(bytes, size) || bytes.size() < size) return false;
  text.assign(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return true;
}

}  // namespace

std::string pack_status(const Status& status) {
  std::string bytes;
  put(bytes, static_cast<std::int32_t>(status.code()));
  put(bytes, static_cast<std::int32_t>(status.subsystem()));
  put(bytes, static_cast<std::int32_t>(status.culprit_rank()));
  const StatusDetail& detail = status.detail();
  for (const auto* text : {&detail.what, &detail.observed, &detail.expected, &detail.hint})
    put_text(bytes, *text);
  return bytes;
}

Status unpack_status(std::string_view bytes) {
  const std::size_t num_bytes = bytes.size();
  std::int32_t code = 0;
  std::int32_t subsystem = 0;
  std::int32_t culprit = -1;
  StatusDetail detail;
  bool good = take(bytes, code) && take(bytes, subsystem) && take(bytes, culprit);
  for (auto* text : {&detail.what, &detail.observed, &detail.expected, &detail.hint})
    good = good && take_text(bytes, *text);
  if (!good || !bytes.empty()) {
    return Status(StatusCode::kInternal, Subsystem::kLaunch,
                  {.what = "packed status",
                   .observed = fmt::format("{} bytes, cut or too long", num_bytes),
                   .expected = "what pack_status() makes",
                   .hint = "all ranks must run the same build"});
  }
  detail.culprit_rank = culprit;
  return Status(static_cast<StatusCode>(code), static_cast<Subsystem>(subsystem),
                std::move(detail));
}

Status agree(const Exchange& exchange, int rank, std::string_view tag, const Status& mine) {
  const Result<std::vector<std::string>> all = exchange(tag, pack_status(mine));
  if (!mine.is_ok()) return mine;
  if (!all.is_ok()) return all.status();
  for (int other = 0; other < static_cast<int>(all.value().size()); ++other) {
    if (other == rank) continue;
    Status theirs = unpack_status(all.value()[other]);
    if (theirs.is_ok()) continue;
    if (theirs.culprit_rank() >= 0) return theirs;
    StatusDetail detail = theirs.detail();
    detail.culprit_rank = other;
    return Status(theirs.code(), theirs.subsystem(), std::move(detail));
  }
  return Status::ok();
}

}  // namespace slipstream
