// TCP exchange: how the processes of one group meet. One process runs a TcpExchangeServer, every
// rank (that process included) joins it over TCP and gets an Exchange. Tiny on purpose: one
// collective, bounded waits, and errors that name the rank that is missing or has left.
//
// launch_processes() makes both ends. Read processes.h next; the wire is in tcp_exchange_server.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "launch/exchange.h"
#include "launch/socket.h"
#include "slipstream/status.h"

namespace slipstream {

// Answers from a thread of its own until it is destroyed. Groups are told apart by `group_token`.
class TcpExchangeServer {
 public:
  static Result<std::unique_ptr<TcpExchangeServer>> start(Listener listener, int num_ranks,
                                                          std::uint64_t group_token);
  virtual ~TcpExchangeServer() = default;
  std::uint16_t port() const { return port_; }

 protected:
  std::uint16_t port_ = 0;
};

struct TcpExchangeAddress {
  std::string host = "127.0.0.1";
  std::uint16_t first_port = 0;
  // The server takes the first free one of [first_port, first_port + num_ports); a client asks each
  // in turn. More than one serves launchers (torchrun) that already listen on the port they name.
  int num_ports = 1;
  std::uint64_t group_token = 0;
};

// Listens on the first free port of the address. Errors: kBackendError when all are taken.
Result<Listener> listen_first_free(const TcpExchangeAddress& address);

// Joins and waits until all ranks have. The exchange keeps the connection; destroying its last copy
// leaves the group. One thread at a time.
// Errors: kTimeout (nobody listens, or a rank never joins: names it), kInvalidArgument (this rank
// is taken, or the number of ranks differs), kPeerFailed (a rank left).
Result<Exchange> join_tcp_exchange(const TcpExchangeAddress& address, int rank, int num_ranks,
                                   std::chrono::milliseconds timeout);

namespace tcp_exchange_wire {

enum Kind : std::uint32_t {
  kHello = 1,     // client: Hello
  kWelcome = 2,   // server: nothing
  kGather = 3,    // client: GatherHeader, tag, bytes
  kGathered = 4,  // server: for every rank a 64-bit size and its bytes
  kError = 5,     // server: a packed Status; the group is broken from here on
};

struct Hello {
  std::uint64_t group_token;
  std::int32_t rank;
  std::int32_t num_ranks;
};

struct GatherHeader {
  std::int32_t timeout_ms;
  std::uint32_t tag_bytes;
};

}  // namespace tcp_exchange_wire

}  // namespace slipstream
