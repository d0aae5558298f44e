// System calls behind socket.h. Sockets are made close-on-exec; SIGPIPE is never raised.
#include "launch/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace slipstream {

namespace {

Status timed_out(std::string what) {
  return Status(StatusCode::kTimeout, Subsystem::kLaunch,
                {.what = std::move(what), .observed = "still waiting at the deadline"});
}

// ok when `fd` is ready for `events` (or in error: the next call on it will say how).
Status wait_ready(int fd, short events, Deadline deadline, const char* what) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, milliseconds_left(deadline));
    if (ready > 0) return Status::ok();
    if (ready == 0) return timed_out(what);
    if (errno != EINTR) return socket_error(what, errno, {});
  }
}

Status closed_by_peer(const char* what) {
  return Status(StatusCode::kPeerFailed, Subsystem::kLaunch,
                {.what = what, .observed = "a connection that the other side closed"});
}

}  // namespace

int milliseconds_left(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= std::chrono::nanoseconds(0)) return 0;
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(rounded, 1 << 30));
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int UniqueFd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void UniqueFd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status socket_error(std::string what, int error_number, std::string hint) {
  return Status(StatusCode::kBackendError, Subsystem::kLaunch,
                {.what = std::move(what),
                 .observed = fmt::format("'{}'", std::strerror(error_number)),
                 .expected = "success",
                 .hint = std::move(hint)});
}

Result<Listener> listen_tcp(const std::string& address, std::uint16_t port) {
  const std::string what = fmt::format("listen on {}:{}", address, port);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1)
    return socket_error(what, EINVAL, "give an IPv4 address");
  Listener listener{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  if (!listener.fd.is_open()) return socket_error(what, errno, {});
  // A port in TIME_WAIT from the job before is free; a port that somebody listens on is not.
  const int on = 1;
  setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(listener.fd.get(), 64) != 0) {
    return socket_error(what, errno, "choose another port, or 0 for any free one");
  }
  socklen_t size = sizeof(name);
  if (getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return socket_error(what, errno, {});
  listener.bound_port = ntohs(name.sin_port);
  return listener;
}

Result<UniqueFd> connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline) {
  const std::string what = fmt::format("connect to {}:{}", host, port);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return invalid_argument(Subsystem::kLaunch, {.what = "address of the rendezvous",
                                                 .observed = fmt::format("'{}'", host),
                                                 .expected = "a name that resolves",
                                                 .hint = gai_strerror(error)});
  }
  sockaddr_in name{};
  std::memcpy(&name, found->ai_addr, sizeof(name));
  freeaddrinfo(found);
  name.sin_port = htons(port);

  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return socket_error(what, errno, {});
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno != EINPROGRESS) return socket_error(what, errno, {});
    if (Status s = wait_ready(fd.get(), POLLOUT, deadline, what.c_str()); !s.is_ok()) return s;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return socket_error(what, error, {});
  }
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

Status send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (Status s = wait_ready(fd, POLLOUT, deadline, "send"); !s.is_ok()) return s;
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
      return closed_by_peer("send");
    } else if (sent < 0 && errno != EINTR && errno != EAGAIN) {
      return socket_error("send", errno, {});
    }
  }
  return Status::ok();
}

Status receive_all(int fd, char* bytes, std::size_t num_bytes, Deadline deadline) {
  while (num_bytes > 0) {
    if (Status s = wait_ready(fd, POLLIN, deadline, "receive"); !s.is_ok()) return s;
    const ssize_t received = recv(fd, bytes, num_bytes, MSG_DONTWAIT);
    if (received > 0) {
      bytes += received;
      num_bytes -= static_cast<std::size_t>(received);
    } else if (received == 0 || errno == ECONNRESET) {
      return closed_by_peer("receive");
    } else if (errno != EINTR && errno != EAGAIN) {
      return socket_error("receive", errno, {});
    }
  }
  return Status::ok();
}

std::string make_frame(std::uint32_t kind, std::string_view payload) {
  const FrameHeader header{kFrameMagic, kind, payload.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += payload;
  return bytes;
}

Result<Frame> receive_frame(int fd, Deadline deadline) {
  FrameHeader header;
  Status status = receive_all(fd, reinterpret_cast<char*>(&header), sizeof(header), deadline);
  if (!status.is_ok()) return status;
  if (header.magic != kFrameMagic || header.num_bytes > kMaxFrameBytes) {
    return Status(
        StatusCode::kPeerFailed, Subsystem::kLaunch,
        {.what = "frame header",
         .observed = fmt::format("magic {:#010x}, {} bytes", header.magic, header.num_bytes),
         .expected = fmt::format("magic {:#010x}, at most {} bytes", kFrameMagic, kMaxFrameBytes),
         .hint = "another program listens on this port"});
  }
  Frame frame{header.kind, std::string(header.num_bytes, '\0')};
  status = receive_all(fd, frame.payload.data(), frame.payload.size(), deadline);
  if (!status.is_ok()) return status;
  return frame;
}

}  // namespace slipstream
