// The meeting point of a group of processes: one thread, poll(), no blocking call.
//
// A rank has at most one gather under way, and rounds follow each other strictly, so the server
// keeps the state of one round. When all ranks are in, everybody gets everything. A rank that
// disconnects, a deadline that passes or tags that differ break the group: all who wait, and all
// who ask later, get the same error.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "launch/tcp_exchange.h"
#include "launch/verdict.h"

namespace slipstream {

namespace {

using namespace tcp_exchange_wire;

struct Connection {
  UniqueFd fd;
  std::string in;
  std::string out;
  int rank = -1;  // -1 until its hello
  bool is_closing = false;
  bool is_waiting = false;
  Deadline deadline;
  std::string tag;
  std::string bytes;
};

class Server final : public TcpExchangeServer {
 public:
  Server(Listener listener, int num_ranks, std::uint64_t group_token, UniqueFd wake_read,
         UniqueFd wake_write)
      : listener_(std::move(listener.fd)),
        num_ranks_(num_ranks),
        group_token_(group_token),
        wake_read_(std::move(wake_read)),
        wake_write_(std::move(wake_write)) {
    port_ = listener.bound_port;
    thread_ = std::thread([this] { serve(); });
  }

  ~Server() override {
    wake_write_.reset();  // the thread sees the hang-up
    thread_.join();
  }

 private:
  void serve();
  void flush();
  void accept_one();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void drop(Connection& connection);
  void handle(Connection& connection, const Frame& frame);
  void handle_hello(Connection& connection, const Frame& frame);
  void handle_gather(Connection& connection, const Frame& frame);
  void finish_round_if_complete();
  void check_deadlines();
  void break_group(Status status);
  void refuse(Connection& connection, const Status& status);
  Connection* find(int rank);
  int poll_timeout() const;

  UniqueFd listener_;
  int num_ranks_;
  std::uint64_t group_token_;
  UniqueFd wake_read_;
  UniqueFd wake_write_;
  std::list<Connection> connections_;
  std::optional<Status> broken_;
  std::thread thread_;
};

void Server::serve() {
  while (true) {
    std::vector<pollfd> entries{{wake_read_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& c : connections_) {
      const short events = c.out.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({c.fd.get(), events, 0});
    }
    if (poll(entries.data(), entries.size(), poll_timeout()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return flush();
    std::size_t i = 2;
    for (Connection& c : connections_) {
      // Serving one connection may close another.
      const short revents = entries[i++].revents;
      if (c.fd.is_open() && (revents & POLLOUT)) write_to(c);
      if (c.fd.is_open() && (revents & (POLLIN | POLLHUP | POLLERR))) read_from(c);
    }
    if (entries[1].revents & POLLIN) accept_one();
    check_deadlines();
    connections_.remove_if([](const Connection& c) { return !c.fd.is_open(); });
  }
}

// The server's owner may be done while a slow reader still has half of its last answer to come.
void Server::flush() {
  const Deadline deadline = deadline_after(std::chrono::seconds(1));
  for (Connection& c : connections_)
    if (c.fd.is_open()) (void)send_all(c.fd.get(), c.out, deadline);
}

int Server::poll_timeout() const {
  int timeout = -1;
  for (const Connection& c : connections_) {
    if (!c.is_waiting) continue;
    const int left = milliseconds_left(c.deadline);
    timeout = timeout < 0 ? left : std::min(timeout, left);
  }
  return timeout;
}

void Server::accept_one() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open()) return;
  Connection connection;
  connection.fd = std::move(fd);
  connections_.push_back(std::move(connection));
}

void Server::read_from(Connection& connection) {
  char buffer[16384];
  while (connection.fd.is_open()) {
    const ssize_t received = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (received <= 0) return drop(connection);
    connection.in.append(buffer, static_cast<std::size_t>(received));
    while (connection.in.size() >= sizeof(FrameHeader)) {
      FrameHeader header;
      std::memcpy(&header, connection.in.data(), sizeof(header));
      if (header.magic != kFrameMagic || header.num_bytes > kMaxFrameBytes) return drop(connection);
      if (connection.in.size() < sizeof(header) + header.num_bytes) break;
      const Frame frame{header.kind, connection.in.substr(sizeof(header), header.num_bytes)};
      connection.in.erase(0, sizeof(header) + header.num_bytes);
      handle(connection, frame);
      if (!connection.fd.is_open()) return;
    }
  }
}

void Server::write_to(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent =
        send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) return drop(connection);
    connection.out.erase(0, static_cast<std::size_t>(sent));
  }
  if (connection.is_closing) connection.fd.reset();
}

void Server::drop(Connection& connection) {
  connection.fd.reset();
  connection.is_waiting = false;
  if (connection.rank < 0) return;  // a stranger
  break_group(error_of_rank_that_left(connection.rank, Status::ok()));
}

void Server::handle(Connection& connection, const Frame& frame) {
  if (connection.rank < 0 && frame.kind == kHello) return handle_hello(connection, frame);
  if (connection.rank >= 0 && frame.kind == kGather && !connection.is_waiting)
    return handle_gather(connection, frame);
  drop(connection);
}

void Server::refuse(Connection& connection, const Status& status) {
  connection.out += make_frame(kError, pack_status(status));
  connection.is_closing = true;
  write_to(connection);
}

Connection* Server::find(int rank) {
  for (Connection& c : connections_)
    if (c.rank == rank && c.fd.is_open()) return &c;
  return nullptr;
}

void Server::handle_hello(Connection& connection, const Frame& frame) {
  Hello hello;
  if (frame.payload.size() != sizeof(hello)) return drop(connection);
  std::memcpy(&hello, frame.payload.data(), sizeof(hello));
  // Another group: closed without a word, and the client tries its next port.
  if (hello.group_token != group_token_) return drop(connection);
  if (hello.num_ranks != num_ranks_) {
    return refuse(connection,
                  invalid_argument(Subsystem::kLaunch,
                                   {.what = fmt::format("number of ranks of rank {}", hello.rank),
                                    .observed = fmt::format("{}", hello.num_ranks),
                                    .expected = fmt::format("{}, the group's", num_ranks_),
                                    .hint = "start every rank with the same WORLD_SIZE"}));
  }
  if (hello.rank < 0 || hello.rank >= num_ranks_ || find(hello.rank) != nullptr) {
    return refuse(connection,
                  invalid_argument(Subsystem::kLaunch,
                                   {.what = "rank",
                                    .observed = fmt::format("{}", hello.rank),
                                    .expected = fmt::format("0..{}, each once", num_ranks_ - 1),
                                    .hint = "start every rank with a RANK of its own"}));
  }
  connection.rank = hello.rank;
  connection.out += make_frame(kWelcome, {});
  write_to(connection);
}

void Server::handle_gather(Connection& connection, const Frame& frame) {
  GatherHeader header;
  if (frame.payload.size() < sizeof(header)) return drop(connection);
  std::memcpy(&header, frame.payload.data(), sizeof(header));
  if (frame.payload.size() < sizeof(header) + header.tag_bytes) return drop(connection);
  connection.tag = frame.payload.substr(sizeof(header), header.tag_bytes);
  connection.bytes = frame.payload.substr(sizeof(header) + header.tag_bytes);
  connection.deadline = deadline_after(std::chrono::milliseconds(header.timeout_ms));
  connection.is_waiting = true;
  if (broken_) return break_group(*broken_);
  for (const Connection& other : connections_) {
    if (!other.is_waiting || other.tag == connection.tag) continue;
    return break_group(
        error_of_differing_tags(connection.rank, connection.tag, other.rank, other.tag));
  }
  finish_round_if_complete();
}

void Server::finish_round_if_complete() {
  std::string payload;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const Connection* c = find(rank);
    if (c == nullptr || !c->is_waiting) return;
    const std::uint64_t num_bytes = c->bytes.size();
    payload.append(reinterpret_cast<const char*>(&num_bytes), sizeof(num_bytes));
    payload += c->bytes;
  }
  const std::string frame = make_frame(kGathered, payload);
  for (Connection& c : connections_) c.is_waiting = false;
  for (Connection& c : connections_) {
    if (c.rank < 0) continue;
    c.out += frame;
    write_to(c);
  }
}

void Server::check_deadlines() {
  const auto now = std::chrono::steady_clock::now();
  const Connection* late = nullptr;
  for (const Connection& c : connections_)
    if (c.is_waiting && c.deadline <= now) late = &c;
  if (late == nullptr) return;
  std::vector<RankPresence> presence;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const Connection* c = find(rank);
    if (c == nullptr)
      presence.push_back(RankPresence::kNeverJoined);
    else
      presence.push_back(c->is_waiting ? RankPresence::kWaiting : RankPresence::kElsewhere);
  }
  break_group(error_of_missing_ranks(late->tag, presence));
}

void Server::break_group(Status status) {
  if (!broken_) broken_ = std::move(status);
  const std::string frame = make_frame(kError, pack_status(*broken_));
  for (Connection& c : connections_) {
    if (!c.is_waiting) continue;
    c.is_waiting = false;
    c.out += frame;
    write_to(c);
  }
}

}  // namespace

Result<std::unique_ptr<TcpExchangeServer>> TcpExchangeServer::start(Listener listener,
                                                                    int num_ranks,
                                                                    std::uint64_t group_token) {
  int wake[2];
  if (pipe2(wake, O_CLOEXEC) != 0) return socket_error("pipe", errno, {});
  // accept() must not block when a connection is gone between poll() and accept().
  fcntl(listener.fd.get(), F_SETFL, fcntl(listener.fd.get(), F_GETFL) | O_NONBLOCK);
  std::unique_ptr<TcpExchangeServer> server = std::make_unique<Server>(
      std::move(listener), num_ranks, group_token, UniqueFd(wake[0]), UniqueFd(wake[1]));
  return server;
}

}  // namespace slipstream
