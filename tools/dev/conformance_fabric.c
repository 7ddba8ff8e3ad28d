/* SPDX-License-Identifier: Apache-2.0 */
/* A libfabric program for ./dev conformance: client and server pass blocks back and forth over a connected endpoint (msg) or
   one that reaches anybody (rdm), and check every byte. libfabric's verbs provider drops the port that a server asks for where
   an address comes with it, so a TCP connection to PORT tells the one that it has.
   usage: fabric_check PROVIDER msg|rdm PORT [SERVER] */
#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK_BYTES = 65536, ROUNDS = 200, NAME_BYTES = 128, WAIT_MS = 60000 };

static struct fi_info* info;
static struct fid_fabric* fabric;
static struct fid_domain* domain;
static struct fid_eq* events;
static struct fid_cq* completions;
static struct fid_av* addresses;
static struct fid_ep* endpoint;
static struct fid_mr* memory;
static fi_addr_t peer = FI_ADDR_UNSPEC;
static unsigned char blocks[2][BLOCK_BYTES]; /* out, in */
static struct fi_context2 contexts[2];
static int ended[2] = {1, 0}; /* the last send, the last receive */

static void check(long result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
  exit(1);
}

static void progress(void) {
  struct fi_cq_msg_entry entry;
  const ssize_t got = fi_cq_read(completions, &entry, 1);
  if (got == -FI_EAGAIN) return;
  if (got == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    fi_cq_readerr(completions, &error, 0);
    check(-error.err, "completion");
  }
  if (got < 0) check(got, "fi_cq_read");
  for (int i = 0; i < 2; ++i) {
    if (entry.op_context == &contexts[i]) ended[i] = 1;
  }
}

static void await(int which) {
  while (!ended[which]) progress();
}

static void post_receive(void) {
  ssize_t result;
  ended[1] = 0;
  while ((result = fi_recv(endpoint, blocks[1], BLOCK_BYTES, fi_mr_desc(memory), FI_ADDR_UNSPEC,
                           &contexts[1])) == -FI_EAGAIN) {
    progress();
  }
  check(result, "fi_recv");
}

static void send_bytes(size_t size_bytes) {
  ssize_t result;
  await(0);
  ended[0] = 0;
  while ((result = fi_send(endpoint, blocks[0], size_bytes, fi_mr_desc(memory), peer,
                           &contexts[0])) == -FI_EAGAIN) {
    progress();
  }
  check(result, "fi_send");
}

static struct fi_info* await_event(uint32_t wanted) {
  char bytes[sizeof(struct fi_eq_cm_entry) + 256];
  struct fi_eq_cm_entry* const entry = (struct fi_eq_cm_entry*)bytes;
  uint32_t event = 0;
  const ssize_t got = fi_eq_sread(events, &event, bytes, sizeof(bytes), WAIT_MS, 0);
  if (got == -FI_EAVAIL) {
    struct fi_eq_err_entry error = {0};
    fi_eq_readerr(events, &error, 0);
    check(-error.err, "event");
  }
  if (got < 0) check(got, "fi_eq_sread");
  if (event != wanted) {
    fprintf(stderr, "event %u, not %u\n", event, wanted);
    exit(1);
  }
  return entry->info;
}

/* To the server's `port`, or from whoever comes there. */
static int open_tcp(int serves, const char* host, const char* port) {
  const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  inet_pton(AF_INET, host, &address.sin_addr);
  if (!serves) {
    if (connect(fd, (struct sockaddr*)&address, sizeof(address)) != 0) check(-FI_ECONNREFUSED, "connect");
    return fd;
  }
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, (struct sockaddr*)&address, sizeof(address)) != 0 || listen(fd, 1) != 0) {
    check(-FI_EADDRINUSE, "bind");
  }
  const int accepted = accept(fd, NULL, NULL);
  close(fd);
  return accepted;
}

/* The port of an endpoint that serves. */
static void tell_port(struct fid* of, const char* port) {
  struct sockaddr_in name;
  size_t name_bytes = sizeof(name);
  check(fi_getname(of, &name, &name_bytes), "fi_getname");
  const int fd = open_tcp(1, "127.0.0.1", port);
  if (write(fd, &name.sin_port, sizeof(name.sin_port)) != sizeof(name.sin_port)) {
    check(-FI_EIO, "write");
  }
  close(fd);
}

/* As text. */
static const char* ask_port(const char* host, const char* port) {
  static char text[8];
  uint16_t told = 0;
  const int fd = open_tcp(0, host, port);
  if (read(fd, &told, sizeof(told)) != sizeof(told)) check(-FI_EIO, "read");
  close(fd);
  snprintf(text, sizeof(text), "%u", ntohs(told));
  return text;
}

/* The endpoint of `of`, ready to post to. */
static void open_endpoint(struct fi_info* of) {
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .size = 64};
  struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
  check(fi_domain(fabric, of, &domain, NULL), "fi_domain");
  check(fi_cq_open(domain, &cq_attr, &completions, NULL), "fi_cq_open");
  check(fi_endpoint(domain, of, &endpoint, NULL), "fi_endpoint");
  check(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  if (of->ep_attr->type == FI_EP_MSG) {
    check(fi_ep_bind(endpoint, &events->fid, 0), "fi_ep_bind");
  } else {
    check(fi_av_open(domain, &av_attr, &addresses, NULL), "fi_av_open");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
  }
  check(fi_enable(endpoint), "fi_enable");
  check(fi_mr_reg(domain, blocks, sizeof(blocks), FI_SEND | FI_RECV, 0, 1, 0, &memory, NULL),
        "fi_mr_reg");
  post_receive();
}

static void connect_msg(int serves, const char* port) {
  struct fi_eq_attr attr = {.size = 16, .wait_obj = FI_WAIT_UNSPEC};
  check(fi_eq_open(fabric, &attr, &events, NULL), "fi_eq_open");
  if (!serves) {
    open_endpoint(info);
    check(fi_connect(endpoint, info->dest_addr, NULL, 0), "fi_connect");
    await_event(FI_CONNECTED);
    return;
  }
  struct fid_pep* listener;
  check(fi_passive_ep(fabric, info, &listener, NULL), "fi_passive_ep");
  check(fi_pep_bind(listener, &events->fid, 0), "fi_pep_bind");
  check(fi_listen(listener), "fi_listen");
  tell_port(&listener->fid, port);
  struct fi_info* const caller = await_event(FI_CONNREQ);
  open_endpoint(caller);
  check(fi_accept(endpoint, NULL, 0), "fi_accept");
  await_event(FI_CONNECTED);
  fi_freeinfo(caller);
  fi_close(&listener->fid);
}

/* The client's first message is its name. */
static void meet_rdm(int serves, const char* port) {
  open_endpoint(info);
  if (serves) {
    tell_port(&endpoint->fid, port);
    await(1);
    if (fi_av_insert(addresses, blocks[1], 1, &peer, 0, NULL) != 1) check(-FI_EINVAL, "fi_av_insert");
    post_receive();
    return;
  }
  size_t name_bytes = NAME_BYTES;
  if (fi_av_insert(addresses, info->dest_addr, 1, &peer, 0, NULL) != 1) {
    check(-FI_EINVAL, "fi_av_insert");
  }
  check(fi_getname(&endpoint->fid, blocks[0], &name_bytes), "fi_getname");
  send_bytes(name_bytes);
  await(0);
}

static int holds(unsigned char value) {
  for (int i = 0; i < BLOCK_BYTES; ++i) {
    if (blocks[1][i] != value) return 0;
  }
  return 1;
}

static void send_block(unsigned char value) {
  await(0);
  memset(blocks[0], value, BLOCK_BYTES);
  send_bytes(BLOCK_BYTES);
}

/* The client sends a value, the server sends back the next one. */
static int play(int serves) {
  int wrong = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    if (!serves) send_block((unsigned char)round);
    await(1);
    wrong += !holds((unsigned char)(round + !serves));
    memset(blocks[1], 0xee, BLOCK_BYTES);
    post_receive();
    if (serves) send_block((unsigned char)(round + 1));
  }
  /* The client says that it has everything; the server leaves last. */
  if (serves) {
    await(1);
  } else {
    send_bytes(1);
  }
  await(0);
  return wrong;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: fabric_check PROVIDER msg|rdm PORT [SERVER]\n");
    return 2;
  }
  const int serves = argc == 4, connected = strcmp(argv[2], "msg") == 0;
  struct fi_info* const hints = fi_allocinfo();
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->ep_attr->type = connected ? FI_EP_MSG : FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->fabric_attr->prov_name = strdup(argv[1]);
  check(fi_getinfo(FI_VERSION(1, 11), serves ? "127.0.0.1" : argv[4],
                   serves ? NULL : ask_port(argv[4], argv[3]), serves ? FI_SOURCE : 0, hints, &info),
        "fi_getinfo");
  check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
  if (connected) {
    connect_msg(serves, argv[3]);
  } else {
    meet_rdm(serves, argv[3]);
  }
  const int wrong = play(serves);
  printf("%d rounds, %d blocks wrong\n", ROUNDS, wrong);
  fi_close(&endpoint->fid);
  fi_close(&memory->fid);
  fi_close(&completions->fid);
  if (addresses != NULL) fi_close(&addresses->fid);
  fi_close(&domain->fid);
  if (events != NULL) fi_close(&events->fid);
  fi_close(&fabric->fid);
  fi_freeinfo(info);
  fi_freeinfo(hints);
  return wrong != 0;
}
