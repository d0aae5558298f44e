// Descriptors travel as ancillary data of datagrams between abstract Unix sockets, whose names the
// exchange spreads. A datagram holds the sender's rank, so they may come in any order.
#include "launch/fd_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace slipstream {

namespace {

// Ancillary data of exactly one descriptor, aligned as the kernel wants it.
union OneFd {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

Status send_fd(int socket_fd, const std::string& to, int rank, int fd) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, to.data(), to.size());
  iovec payload{&rank, sizeof(rank)};
  OneFd control{};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + to.size());
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (sendmsg(socket_fd, &message, MSG_NOSIGNAL) < 0)
    return socket_error("send of a file descriptor", errno, "the ranks must share one host");
  return Status::ok();
}

// The sender's rank, or -1 for a datagram that is none of ours.
Result<int> receive_fd(int socket_fd, UniqueFd& fd) {
  int rank = -1;
  iovec payload{&rank, sizeof(rank)};
  OneFd control{};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t received = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0) return socket_error("receive of a file descriptor", errno, {});
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int value = -1;
  std::memcpy(&value, CMSG_DATA(header), sizeof(value));
  fd = UniqueFd(value);
  return received == sizeof(rank) ? rank : -1;
}

Status receive_all_fds(int socket_fd, std::vector<UniqueFd>& fds, Deadline deadline) {
  while (true) {
    int missing = -1;
    for (int rank = static_cast<int>(fds.size()) - 1; rank >= 0; --rank)
      if (!fds[rank].is_open()) missing = rank;
    if (missing < 0) return Status::ok();
    pollfd entry{socket_fd, POLLIN, 0};
    const int ready = poll(&entry, 1, milliseconds_left(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      StatusDetail detail{.what = fmt::format("file descriptor of rank {}", missing),
                          .observed = "not received at the deadline",
                          .expected = "one from every rank",
                          .hint = "look at that rank's output, or raise the timeout"};
      detail.culprit_rank = missing;
      return Status(StatusCode::kTimeout, Subsystem::kLaunch, std::move(detail));
    }
    UniqueFd fd;
    Result<int> rank = receive_fd(socket_fd, fd);
    if (!rank.is_ok()) return rank.status();
    if (rank.value() >= 0 && rank.value() < static_cast<int>(fds.size()))
      fds[rank.value()] = std::move(fd);
  }
}

}  // namespace

Result<std::vector<UniqueFd>> exchange_fds(const Exchange& exchange, int rank, int num_ranks,
                                           int fd, std::chrono::milliseconds timeout) {
  UniqueFd mailbox(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!mailbox.is_open()) return socket_error("Unix socket", errno, {});
  // Binding to no name makes the kernel choose a free abstract one.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t size = sizeof(name);
  if (bind(mailbox.get(), reinterpret_cast<sockaddr*>(&name), sizeof(sa_family_t)) != 0 ||
      getsockname(mailbox.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return socket_error("bind of a Unix socket", errno, {});
  const std::string_view mine(name.sun_path, size - offsetof(sockaddr_un, sun_path));
  Result<std::vector<std::string>> names = exchange("file descriptor mailboxes", mine);
  if (!names.is_ok()) return names.status();

  std::vector<UniqueFd> fds(num_ranks);
  fds[rank] = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  Status status = fds[rank].is_open() ? Status::ok() : socket_error("dup", errno, {});
  for (int peer = 0; peer < num_ranks && status.is_ok(); ++peer)
    if (peer != rank) status = send_fd(mailbox.get(), names.value()[peer], rank, fd);
  if (status.is_ok()) status = receive_all_fds(mailbox.get(), fds, deadline_after(timeout));
  // Mailboxes stay open until everybody has read theirs.
  if (Status s = agree(exchange, rank, "file descriptors", status); !s.is_ok()) return s;
  return fds;
}

}  // namespace slipstream
