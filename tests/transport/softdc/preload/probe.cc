// SPDX-License-Identifier: Apache-2.0
//
// A program that knows nothing of softdc; preload_test runs it beneath softdc_run. It finds functions as the loader
// would, by name. Prints what it sees as lines "key value".
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace {

template <typename Signature>
Signature* Find(const char* name) {
  return reinterpret_cast<Signature*>(dlsym(RTLD_DEFAULT, name));
}

bool Mapped(const char* library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

void Idle() {
  const int fd = open("/dev/null", O_WRONLY);
  std::printf("written %zd\n", write(fd, "x", 1));
  struct stat out;
  std::printf("null_is_device %d\n", fstat(fd, &out) == 0 && S_ISCHR(out.st_mode));
  std::printf("closed %d\n", close(fd));
  const int created = open((std::string(getenv("TEST_TMPDIR")) + "/made").c_str(),
                           O_CREAT | O_RDWR | O_TRUNC, 0640);
  std::printf("mode %o\n", fstat(created, &out) == 0 ? out.st_mode & 0777 : 0);
  close(created);
  std::printf("device_library %d\n", Mapped("libsoftdc_device.so"));
}

int DeviceCount() {
  int count = 0;
  ibv_device** list = Find<decltype(ibv_get_device_list)>("ibv_get_device_list")(&count);
  Find<decltype(ibv_free_device_list)>("ibv_free_device_list")(list);
  return count;
}

void Verbs() {
  ibv_device** list = Find<decltype(ibv_get_device_list)>("ibv_get_device_list")(nullptr);
  std::printf("name %s\n", Find<decltype(ibv_get_device_name)>("ibv_get_device_name")(list[0]));
  ibv_context* context = Find<decltype(ibv_open_device)>("ibv_open_device")(list[0]);
  errno = 0;
  std::printf("import_null %d\n", Find<void*(int)>("ibv_import_device")(3) == nullptr);
  std::printf("import_errno %d\n", errno);
  std::printf("devx %d\n", Find<int(void*, void*, size_t, void*, size_t)>(
                               "mlx5dv_devx_general_cmd")(context, nullptr, 0, nullptr, 0));
  std::printf("index %d\n", Find<int(ibv_device*)>("ibv_get_device_index")(list[0]));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(DeviceCount());  // with the parent's context open
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("devices_in_child %d\n", WEXITSTATUS(status));
  std::printf("close %d\n", Find<decltype(ibv_close_device)>("ibv_close_device")(context));
}

void ConnectionManager() {
  const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  std::printf("opened %d\n", fd >= 0);
  struct stat out;
  std::printf("is_device %d\n", fstat(fd, &out) == 0 && S_ISCHR(out.st_mode));
  pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
  std::printf("polled %d\n", poll(&polled, 1, 0));
  std::printf("short_write %zd\n", write(fd, "x", 1));  // less than a command's header
  std::printf("short_errno %d\n", errno);
  std::printf("closed %d\n", close(fd));
  std::printf("closed_twice %d\n", close(fd));
}

std::string FirstLine(FILE* file) {
  char line[64] = "";
  if (file == nullptr || fgets(line, sizeof(line), file) == nullptr) return "errno";
  fclose(file);
  line[std::strcspn(line, "\n")] = 0;
  return line;
}

// What UCX looks for.
void Files() {
  struct stat out;
  std::printf("device %d\n", stat("/dev/infiniband/usoftdc0", &out) == 0 && S_ISCHR(out.st_mode));
  std::printf("cm %d\n", stat("/dev/infiniband/rdma_cm", &out) == 0 && S_ISCHR(out.st_mode));
  std::printf("usable %d\n", access("/dev/infiniband/usoftdc0", R_OK | W_OK));
  std::printf("other %d\n", access("/dev/infiniband/other", F_OK));
  std::printf("folder %d\n",
              stat("/sys/class/infiniband/softdc0/ports", &out) == 0 && S_ISDIR(out.st_mode));
  const std::string attributes = "/sys/class/infiniband/softdc0/";
  const int fd = open((attributes + "device/vendor").c_str(), O_RDONLY);
  std::printf("vendor %s\n", FirstLine(fdopen(fd, "r")).c_str());
  std::printf("type %s\n",
              FirstLine(fopen((attributes + "ports/1/gid_attrs/types/0").c_str(), "r")).c_str());
  std::printf("write %d\n", open((attributes + "device/vendor").c_str(), O_RDWR));
  std::printf("absent %d\n", open((attributes + "absent").c_str(), O_RDONLY));
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  if (what == "idle") Idle();
  if (what == "verbs") Verbs();
  if (what == "cm") ConnectionManager();
  if (what == "files") Files();
  return 0;
}
