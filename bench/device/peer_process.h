// A benchmark peer in another process: it reads requests as lines and answers with lines. It holds
// its own operands on the same GPU and runs only when asked, so that contestants can alternate.
#pragma once

#include <string>
#include <vector>

namespace slipstream::bench {

class PeerProcess {
 public:
  // Starts `python3 script`. is_alive() is false if that fails or once it has died.
  explicit PeerProcess(const std::string& script);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  bool is_alive() const { return alive_; }
  // Sends a line, returns the answer; empty when the peer is gone.
  std::string ask(const std::string& line);
  // The same for an answer of numbers.
  std::vector<double> ask_numbers(const std::string& line);

 private:
  bool alive_ = false;
  int pid_ = -1;
  int to_peer_ = -1;
  int from_peer_ = -1;
};

}  // namespace slipstream::bench
