// SPDX-License-Identifier: Apache-2.0
//
// The option --spans of the echo programs: the spans of all calls as a file for ui.perfetto.dev.
#ifndef SLUICE_EXAMPLES_ECHO_SPANS_FILE_H_
#define SLUICE_EXAMPLES_ECHO_SPANS_FILE_H_

#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "middleware/services/span_export.h"
#include "middleware/services/span_recorder.h"

namespace sluice::examples::echo {

class SpansFile {
 public:
  // `path`: empty: nothing is recorded.
  SpansFile(std::string path, std::string program)
      : path_(std::move(path)), program_(std::move(program)) {}
  bool wanted() const { return !path_.empty(); }
  SpanRecorder& recorder() { return *recorder_; }

  // When the calls have ended.
  absl::Status Write() {
    if (!wanted()) return absl::OkStatus();
    std::ofstream file(path_);
    file << SpansAsChromeTrace(program_, static_cast<uint32_t>(getpid()), recorder_->Take());
    file.close();
    return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path_));
  }

 private:
  const std::string path_;
  const std::string program_;
  const std::shared_ptr<SpanRecorder> recorder_ =
      std::make_shared<SpanRecorder>(SpanOptions{.one_in = 1});
};

}  // namespace sluice::examples::echo

#endif  // SLUICE_EXAMPLES_ECHO_SPANS_FILE_H_
