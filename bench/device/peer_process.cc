// A benchmark peer in another process. See peer_process.h.
#include "peer_process.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

namespace slipstream::bench {

PeerProcess::PeerProcess(const std::string& script) {
  if (script.empty()) return;
  int request[2], answer[2];
  if (pipe(request) != 0) return;
  if (pipe(answer) != 0) {
    close(request[0]);
    close(request[1]);
    return;
  }
  signal(SIGPIPE, SIG_IGN);  // a dead peer shows as a failed write
  pid_ = fork();
  if (pid_ == 0) {
    dup2(request[0], STDIN_FILENO);
    dup2(answer[1], STDOUT_FILENO);
    for (const int fd : {request[0], request[1], answer[0], answer[1]}) close(fd);
    execlp("python3", "python3", "-u", script.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(request[0]);
  close(answer[1]);
  to_peer_ = request[1];
  from_peer_ = answer[0];
  alive_ = pid_ > 0;
  if (alive_) alive_ = ask("hello") == "ready";
}

PeerProcess::~PeerProcess() {
  if (to_peer_ >= 0) close(to_peer_);  // the peer ends at the end of its input
  if (from_peer_ >= 0) close(from_peer_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

std::string PeerProcess::ask(const std::string& line) {
  if (!alive_) return "";
  const std::string message = line + "\n";
  if (write(to_peer_, message.data(), message.size()) != static_cast<ssize_t>(message.size())) {
    alive_ = false;
    return "";
  }
  std::string answer;
  char c = 0;
  while (read(from_peer_, &c, 1) == 1) {
    if (c == '\n') return answer;
    answer += c;
  }
  alive_ = false;
  return "";
}

std::vector<double> PeerProcess::ask_numbers(const std::string& line) {
  std::istringstream text(ask(line));
  std::vector<double> numbers;
  for (double value = 0; text >> value;) numbers.push_back(value);
  return numbers;
}

}  // namespace slipstream::bench
