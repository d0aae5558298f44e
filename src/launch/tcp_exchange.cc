// The client's end of the TCP exchange.
#include "launch/tcp_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

namespace slipstream {

namespace {

using namespace tcp_exchange_wire;

// The server keeps the deadline, because it knows who is missing; a client gives it this much more
// before it says that the server itself is silent.
constexpr std::chrono::milliseconds kServerGrace{2000};

class Client {
 public:
  Client(UniqueFd fd, int num_ranks, std::chrono::milliseconds timeout)
      : fd_(std::move(fd)), num_ranks_(num_ranks), timeout_(timeout) {}

  Result<std::vector<std::string>> gather(std::string_view tag, std::string_view bytes) {
    if (!broken_.is_ok()) return broken_;
    Result<std::vector<std::string>> result = try_gather(tag, bytes);
    if (!result.is_ok()) {
      broken_ = result.status();
      fd_.reset();  // the others must not wait for a rank that has given up
    }
    return result;
  }

 private:
  Result<std::vector<std::string>> try_gather(std::string_view tag, std::string_view bytes);

  UniqueFd fd_;
  int num_ranks_;
  std::chrono::milliseconds timeout_;
  Status broken_;
};

Result<std::vector<std::string>> Client::try_gather(std::string_view tag, std::string_view bytes) {
  const GatherHeader header{static_cast<std::int32_t>(timeout_.count()),
                            static_cast<std::uint32_t>(tag.size())};
  std::string payload(reinterpret_cast<const char*>(&header), sizeof(header));
  payload += tag;
  payload += bytes;
  const std::uint64_t all_bytes = num_ranks_ * (bytes.size() + sizeof(std::uint64_t));
  if (std::max<std::uint64_t>(payload.size(), all_bytes) > kMaxFrameBytes) {
    return invalid_argument(Subsystem::kLaunch,
                            {.what = fmt::format("exchange '{}'", tag),
                             .observed = fmt::format("{} bytes a rank", bytes.size()),
                             .expected = fmt::format("{} over all ranks", kMaxFrameBytes),
                             .hint = "send handles, not data"});
  }
  const Deadline deadline = deadline_after(timeout_ + kServerGrace);
  if (Status s = send_all(fd_.get(), make_frame(kGather, payload), deadline); !s.is_ok()) return s;
  Result<Frame> frame = receive_frame(fd_.get(), deadline);
  if (!frame.is_ok()) return frame.status();
  if (frame.value().kind == kError) return unpack_status(frame.value().payload);

  std::vector<std::string> all;
  std::string_view rest = frame.value().payload;
  while (rest.size() >= sizeof(std::uint64_t)) {
    std::uint64_t num_bytes = 0;
    std::memcpy(&num_bytes, rest.data(), sizeof(num_bytes));
    rest.remove_prefix(sizeof(num_bytes));
    if (num_bytes > rest.size()) break;
    all.emplace_back(rest.substr(0, num_bytes));
    rest.remove_prefix(num_bytes);
  }
  if (static_cast<int>(all.size()) != num_ranks_ || !rest.empty()) {
    return Status(StatusCode::kInternal, Subsystem::kLaunch,
                  {.what = fmt::format("answer to exchange '{}'", tag),
                   .observed = fmt::format("{} parts", all.size()),
                   .expected = fmt::format("{}", num_ranks_),
                   .hint = "all ranks must run the same build"});
  }
  return all;
}

// One try of one port. kPeerFailed or kBackendError: nobody of ours there (yet).
Result<UniqueFd> say_hello(const std::string& host, std::uint16_t port, const Hello& hello,
                           Deadline deadline) {
  Result<UniqueFd> fd = connect_tcp(host, port, deadline);
  if (!fd.is_ok()) return fd;
  const std::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
  Status sent = send_all(fd.value().get(), make_frame(kHello, bytes), deadline);
  if (!sent.is_ok()) return sent;
  // A stranger's server may say nothing at all: it does not get the whole deadline.
  const Deadline answer_by = std::min(deadline, deadline_after(std::chrono::seconds(2)));
  Result<Frame> frame = receive_frame(fd.value().get(), answer_by);
  if (!frame.is_ok()) return frame.status();
  if (frame.value().kind == kError) return unpack_status(frame.value().payload);
  if (frame.value().kind != kWelcome)
    return Status(StatusCode::kPeerFailed, Subsystem::kLaunch, {.what = "answer to hello"});
  return fd;
}

Result<UniqueFd> connect_until(const TcpExchangeAddress& address, const Hello& hello,
                               Deadline deadline) {
  Status last = Status::ok();
  do {
    for (int i = 0; i < address.num_ports; ++i) {
      const auto port = static_cast<std::uint16_t>(address.first_port + i);
      Result<UniqueFd> fd = say_hello(address.host, port, hello, deadline);
      if (fd.is_ok() || fd.status().code() == StatusCode::kInvalidArgument) return fd;
      last = fd.status();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < deadline);
  StatusDetail detail{
      .what = fmt::format("rendezvous at {}:{}", address.host, address.first_port),
      .observed = fmt::format("nobody of this group until the deadline ({})", last.message()),
      .expected = "rank 0 or the launcher to listen there",
      .hint = "check MASTER_ADDR and MASTER_PORT, and that rank 0 started"};
  detail.culprit_rank = 0;
  return Status(StatusCode::kTimeout, Subsystem::kLaunch, std::move(detail));
}

}  // namespace

Result<Listener> listen_first_free(const TcpExchangeAddress& address) {
  const bool is_local = address.host == "localhost" || address.host.rfind("127.", 0) == 0;
  Status last = Status::ok();
  for (int i = 0; i < address.num_ports; ++i) {
    const auto port = static_cast<std::uint16_t>(address.first_port + i);
    Result<Listener> listener = listen_tcp(is_local ? "127.0.0.1" : "0.0.0.0", port);
    if (listener.is_ok()) return listener;
    last = listener.status();
  }
  return last;
}

Result<Exchange> join_tcp_exchange(const TcpExchangeAddress& address, int rank, int num_ranks,
                                   std::chrono::milliseconds timeout) {
  const Hello hello{address.group_token, rank, num_ranks};
  Result<UniqueFd> fd = connect_until(address, hello, deadline_after(timeout));
  if (!fd.is_ok()) return fd.status();
  auto client = std::make_shared<Client>(std::move(fd).value(), num_ranks, timeout);
  Exchange exchange = [client](std::string_view tag, std::string_view bytes) {
    return client->gather(tag, bytes);
  };
  Result<std::vector<std::string>> joined = exchange("join", {});
  if (!joined.is_ok()) return joined.status();
  return exchange;
}

}  // namespace slipstream
