// Sockets with deadlines: the little that the TCP exchange and the exchange of file descriptors
// need. Every wait here is bounded. Read tcp_exchange.h next.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "slipstream/status.h"

namespace slipstream {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline deadline_after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}
// What poll() takes: 0 or more milliseconds, rounded up so that a wait never spins on 0.
int milliseconds_left(Deadline deadline);

// A file descriptor that closes itself.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// A failed system call as a Status: "listen on 127.0.0.1:29500 is 'Address already in use'".
Status socket_error(std::string what, int error_number, std::string hint);

// `port` 0 takes any free one; bound_port says which. `address` is a dotted quad.
struct Listener {
  UniqueFd fd;
  std::uint16_t bound_port = 0;
};
Result<Listener> listen_tcp(const std::string& address, std::uint16_t port);

// One try. `host` may be a name. The socket is blocking and without Nagle's delay.
Result<UniqueFd> connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);

// All bytes or an error: kTimeout at the deadline, kPeerFailed when the other side has closed.
Status send_all(int fd, std::string_view bytes, Deadline deadline);
Status receive_all(int fd, char* bytes, std::size_t num_bytes, Deadline deadline);

// Frames: what both ends of the TCP exchange speak. A frame is a header and `num_bytes` of payload.
struct FrameHeader {
  std::uint32_t magic = 0;
  std::uint32_t kind = 0;
  std::uint64_t num_bytes = 0;
};
inline constexpr std::uint32_t kFrameMagic = 0x50494c53;  // "SLIP"
inline constexpr std::uint64_t kMaxFrameBytes = 16 << 20;

std::string make_frame(std::uint32_t kind, std::string_view payload);

struct Frame {
  std::uint32_t kind = 0;
  std::string payload;
};
// Besides receive_all()'s errors: kPeerFailed when the bytes are no frame of ours.
Result<Frame> receive_frame(int fd, Deadline deadline);

}  // namespace slipstream
