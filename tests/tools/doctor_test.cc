// SPDX-License-Identifier: Apache-2.0
//
// What the doctor says of hosts that are folders.
#include "tools/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::tools {
namespace doctor_test {

using ::testing::HasSubstr;
using ::testing::Not;

// A host with one active RoCE port, on which nothing is wrong.
class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    const char* folder = std::getenv("TEST_TMPDIR");
    root_ = std::string(folder != nullptr ? folder : "/tmp") + "/" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    Limits("unlimited", "65536");
    Put("dev/infiniband/rdma_cm", "");
    Put("dev/infiniband/uverbs0", "");
    Put("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
    Put(kPort + "state", "4: ACTIVE");
    Put(kPort + "phys_state", "5: LinkUp");
    Put(kPort + "link_layer", "Ethernet");
    Put(kPort + "rate", "100 Gb/sec (4X EDR)");
    Gid("0", "fe80:0000:0000:0000:0ac0:ebff:fe12:3456", "RoCE v2");
    Gid("1", "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1");
    Gid("3", "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2");
    Gid("10", "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2");
    Put("sys/class/net/ens1/mtu", "9000");
    Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance");
    Put("proc/sys/kernel/yama/ptrace_scope", "1");
    Put("proc/meminfo", "MemTotal:  8000000 kB\nMemAvailable:   4000000 kB\n");
    system_.set_auto_choice("mlx5_0");
    system_.set_auto_reason("mlx5_0, because it has DC");
    DeviceInfo* device = system_.add_devices();
    device->set_name("mlx5_0");
    device->set_provider("native");
    CapabilityInfo* on = device->add_capabilities();
    on->set_name("stream isolation");
    on->set_on(true);
  }
  ~DoctorTest() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(root_ + "/" + path); }
  void Limits(const std::string& memlock, const std::string& files) {
    Put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            " +
            files +
            "                20000                files     \n"
            "Max locked memory         " +
            memlock + "              8388608              bytes     \n");
  }
  void Gid(const std::string& index, const std::string& gid, const std::string& type) {
    Put(kPort + "gids/" + index, gid);
    Put(kPort + "gid_attrs/types/" + index, type);
    Put(kPort + "gid_attrs/ndevs/" + index, "ens1");
  }
  std::string Text() { return CheckText(Examine(root_, system_)); }
  bool Blocked() { return Examine(root_, system_).blocked(); }

  const std::string kPort = "sys/class/infiniband/mlx5_0/ports/1/";
  std::string root_;
  SystemInfo system_;
};

TEST_F(DoctorTest, HealthyHostIsFine) {
  EXPECT_EQ(Text(),
            "ok        memlock          unlimited\n"
            "ok        open files       65536\n"
            "ok        mlx5_0 port 1    ACTIVE, Ethernet, 100 Gb/sec (4X EDR)\n"
            "ok        mlx5_0 port 1    GID 3 of ens1 is RoCE v2\n"
            "ok        mlx5_0 port 1    the MTU of ens1 is 9000\n"
            "ok        mlx5_0           stream isolation is in use\n"
            "ok        device           auto takes mlx5_0, because it has DC\n"
            "Nothing keeps Sluice from working here.\n");
  EXPECT_FALSE(Blocked());
}

TEST_F(DoctorTest, EveryThingThatCanBeWrongAtOnce) {
  Limits("8388608", "512");
  Remove("dev/infiniband/rdma_cm");
  Remove("dev/infiniband/uverbs0");
  Remove(kPort + "gids/3");
  Put("sys/class/net/ens1/mtu", "1000");
  Put("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN");
  Put("sys/class/infiniband/mlx5_0/ports/2/phys_state", "2: Polling");
  Put("sys/class/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand");
  Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave");
  Put("proc/sys/kernel/yama/ptrace_scope", "3");
  Put("proc/meminfo", "MemAvailable:   4000 kB\n");
  CapabilityInfo* off = system_.mutable_devices(0)->add_capabilities();
  off->set_name("payload polling");
  off->set_why("the device promises no order");
  off->set_fallback("completions");
  DeviceInfo* other = system_.add_devices();
  other->set_name("mlx5_1");
  other->set_provider("native");
  other->set_open_error("permission denied");
  system_.set_auto_choice("");
  system_.set_auto_reason("no device has DC");
  EXPECT_EQ(
      Text(),
      "BLOCKING  memlock          8192 KiB: a NIC's memory is locked; each poller with default "
      "options "
      "takes 35 MiB when it starts, and up to 514 MiB later (lanes, large messages); softdc needs "
      "none\n"
      "                             ulimit -l unlimited; LimitMEMLOCK=infinity in a unit; --ulimit "
      "memlock=-1 of a container; memlock in /etc/security/limits.conf\n"
      "WARNING   open files       512: each softdc peer and each RDMA_CM connection takes some\n"
      "                             ulimit -n 65536; LimitNOFILE=65536 in a unit\n"
      "BLOCKING  RDMA_CM          there is no /dev/infiniband/rdma_cm: no process can connect\n"
      "                             modprobe rdma_ucm; in a container pass "
      "--device=/dev/infiniband/rdma_cm\n"
      "BLOCKING  mlx5_0           there is no /dev/infiniband/uverbs0\n"
      "                             udevadm trigger; in a container pass "
      "--device=/dev/infiniband/uverbs0\n"
      "ok        mlx5_0 port 1    ACTIVE, Ethernet, 100 Gb/sec (4X EDR)\n"
      "WARNING   mlx5_0 port 1    its only RoCE v2 GID is link-local: nothing beyond the switch is "
      "reached\n"
      "                             give ens1 an address: ip addr add 10.0.0.5/24 dev ens1\n"
      "WARNING   mlx5_0 port 1    the MTU of ens1 is 1000: packets carry 512 bytes, or less, "
      "instead of 1024\n"
      "                             on both hosts and the switch: ip link set dev ens1 mtu 1500\n"
      "WARNING   mlx5_0 port 2    is DOWN, Polling\n"
      "                             plug in the cable, or look at the switch's port\n"
      "ok        mlx5_0           stream isolation is in use\n"
      "note      mlx5_0           payload polling is not in use: the device promises no order\n"
      "                             nothing has to be done, Sluice does this: completions\n"
      "WARNING   mlx5_1           can't be used: permission denied\n"
      "                             see what it needs above, or choose another device\n"
      "note      CPU              its governor is powersave: latencies vary\n"
      "                             cpupower frequency-set -g performance\n"
      "note      memory           processes can't read each other's: softdc copies twice where "
      "memory is not shared\n"
      "                             sysctl kernel.yama.ptrace_scope=1, which takes a reboot after "
      "3\n"
      "WARNING   memory           4000 KiB are available\n"
      "                             free some, or lower limits.receive_buffers and "
      "limits.max_message_bytes\n"
      "BLOCKING  device           auto takes none: no device has DC\n"
      "                             fix the findings above, or choose a device by name\n"
      "Something keeps Sluice from working here: see BLOCKING.\n");
}

// 64 MiB do for a start, and not for large messages.
TEST_F(DoctorTest, MemlockIsComparedWithWhatTheOptionsNeed) {
  Limits("67108864", "65536");
  EXPECT_FALSE(Blocked());
  EXPECT_THAT(Text(), HasSubstr("WARNING   memlock          65536 KiB: a NIC's memory is locked"));
  Limits("1073741824", "65536");
  EXPECT_THAT(Text(), HasSubstr("ok        memlock          1048576 KiB"));
  Limits("33554432", "65536");
  EXPECT_TRUE(Blocked());
}

// The kernel does not hold root to the limit, unless root is that of a container's user namespace.
TEST_F(DoctorTest, WithCapIpcLockTheLimitBlocksNothing) {
  Limits("8388608", "65536");
  Put("proc/self/status", "Name:\tsluice_info\nCapEff:\t000001ffffffffff");
  Put("proc/self/uid_map", "         0          0 4294967295");
  EXPECT_FALSE(Blocked());
  EXPECT_THAT(Text(),
              HasSubstr("memlock          8192 KiB, which CAP_IPC_LOCK lets this process exceed"));
  Put("proc/self/uid_map", "         0     100000      65536");
  EXPECT_TRUE(Blocked());
  Put("proc/self/uid_map", "         0          0 4294967295");
  Put("proc/self/status", "Name:\tsluice_info\nCapEff:\t000001ffffffbfff");
  EXPECT_TRUE(Blocked());
}

// Control messages take whole buffers there: 40 MiB do with DC only.
TEST_F(DoctorTest, WithoutDcMoreMemoryIsNeeded) {
  Limits("41943040", "65536");
  EXPECT_FALSE(Blocked());
  system_.mutable_devices(0)->set_driver("rdma_rxe");
  EXPECT_TRUE(Blocked());
  EXPECT_THAT(Text(), HasSubstr("BLOCKING  memlock          40960 KiB"));
}

// Only a smaller one is too small for the default path MTU.
TEST_F(DoctorTest, EthernetMtuIsComparedWithThePathMtus) {
  Put("sys/class/net/ens1/mtu", "1500");
  EXPECT_NE(Text().find("ok        mlx5_0 port 1    the MTU of ens1 is 1500: enough for "
                        "limits.path_mtu 1024; 4096 needs 4200\n"),
            std::string::npos)
      << Text();
  Put("sys/class/net/ens1/mtu", "2200");
  EXPECT_NE(Text().find("enough for limits.path_mtu 2048"), std::string::npos) << Text();
}

TEST_F(DoctorTest, EachBlockingFindingBlocksByItself) {
  EXPECT_FALSE(Blocked());
  Limits("33554432", "65536");
  EXPECT_TRUE(Blocked());
  Limits("67108864", "65536");
  EXPECT_FALSE(Blocked());
  Remove("dev/infiniband/uverbs0");
  EXPECT_TRUE(Blocked());
  Put("dev/infiniband/uverbs0", "");
  Remove("sys/class/infiniband_verbs");
  EXPECT_TRUE(Blocked());
  EXPECT_THAT(Text(), HasSubstr("modprobe ib_uverbs"));
  Put("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  Remove(kPort + "gids");
  EXPECT_TRUE(Blocked());
  EXPECT_THAT(Text(), HasSubstr("no RoCE v2 GID"));
}

TEST_F(DoctorTest, HostWithoutANicRunsOnSoftdc) {
  Remove("sys/class/infiniband");
  Remove("dev");
  Limits("8388608", "65536");
  system_.mutable_devices(0)->set_name("softdc0");
  system_.mutable_devices(0)->set_provider("softdc");
  EXPECT_FALSE(Blocked()) << "softdc locks no memory";
  EXPECT_THAT(Text(), HasSubstr("reach each other by softdc"));
  EXPECT_THAT(Text(), HasSubstr("rdma link add rxe0 type rxe netdev NAME"));
  EXPECT_THAT(Text(), HasSubstr("note      memlock"));
  system_.mutable_devices(0)->set_open_error("no space");
  EXPECT_TRUE(Blocked());
}

TEST_F(DoctorTest, InfinibandPortNeedsNoAddress) {
  Put(kPort + "link_layer", "InfiniBand");
  Remove(kPort + "gids");
  EXPECT_FALSE(Blocked());
  EXPECT_THAT(Text(), Not(HasSubstr("RoCE")));
  Put(kPort + "state", "2: INIT");
  EXPECT_THAT(Text(), HasSubstr("subnet manager"));
}

TEST(DoctorOfNothingTest, UnreadableHostIsNoCrash) {
  SystemInfo system;
  system.set_auto_choice("softdc0");
  const CheckReport report = Examine("/nonexistent", system);
  EXPECT_FALSE(report.blocked());
  EXPECT_THAT(CheckText(report), HasSubstr("the limit can't be read"));
}

}  // namespace doctor_test
}  // namespace sluice::tools
