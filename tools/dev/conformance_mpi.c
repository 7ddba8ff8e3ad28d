/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI program for ./dev conformance: two ranks pass blocks back and forth, exchange, write into and read from each
   other's memory and sum up. Every byte is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 65536, ROUNDS = 200, RANKS = 2, SUMMANDS = 8192 };

static unsigned char block[BLOCK_BYTES];

static int holds(const unsigned char* bytes, unsigned char value) {
  for (int i = 0; i < BLOCK_BYTES; ++i) {
    if (bytes[i] != value) return 0;
  }
  return 1;
}

/* Rank 0 sends a value, rank 1 sends back the next one. Each function returns how many blocks were wrong at this rank. */
static int play(int rank) {
  const int peer = 1 - rank;
  int wrong = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    const unsigned char sent = (unsigned char)(round + rank);
    if (rank == 1) {
      MPI_Recv(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += !holds(block, (unsigned char)round);
    }
    memset(block, sent, BLOCK_BYTES);
    MPI_Send(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Recv(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += !holds(block, (unsigned char)(round + 1));
    }
  }
  return wrong;
}

/* The block from rank r to rank s holds 16 r + s + the round. */
static int exchange(int rank) {
  static unsigned char out[RANKS][BLOCK_BYTES], in[RANKS][BLOCK_BYTES];
  int wrong = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    for (int to = 0; to < RANKS; ++to) memset(out[to], 16 * rank + to + round, BLOCK_BYTES);
    MPI_Alltoall(out, BLOCK_BYTES, MPI_BYTE, in, BLOCK_BYTES, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < RANKS; ++from) {
      wrong += !holds(in[from], (unsigned char)(16 * from + rank + round));
    }
  }
  return wrong;
}

/* Each rank writes into the first half of the other's window and then reads the second. */
static int put_and_get(int rank) {
  const int peer = 1 - rank;
  unsigned char* window_bytes = NULL;
  MPI_Win window;
  int wrong = 0;
  MPI_Win_allocate(2 * BLOCK_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_bytes, &window);
  for (int round = 0; round < ROUNDS; ++round) {
    memset(window_bytes + BLOCK_BYTES, 3 * round + rank, BLOCK_BYTES);
    memset(block, 5 * round + rank, BLOCK_BYTES);
    MPI_Win_fence(0, window);
    MPI_Put(block, BLOCK_BYTES, MPI_BYTE, peer, 0, BLOCK_BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    wrong += !holds(window_bytes, (unsigned char)(5 * round + peer));
    MPI_Get(block, BLOCK_BYTES, MPI_BYTE, peer, BLOCK_BYTES, BLOCK_BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    wrong += !holds(block, (unsigned char)(3 * round + peer));
  }
  MPI_Win_free(&window);
  return wrong;
}

static int sum_up(int rank) {
  static long mine[SUMMANDS], sums[SUMMANDS];
  int wrong = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    for (long i = 0; i < SUMMANDS; ++i) mine[i] = i * (rank + 1) + round;
    MPI_Allreduce(mine, sums, SUMMANDS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (long i = 0; i < SUMMANDS; ++i) {
      if (sums[i] != 3 * i + 2 * round) {
        ++wrong;
        break;
      }
    }
  }
  return wrong;
}

int main(int argc, char** argv) {
  static int (*const checks[])(int) = {play, exchange, put_and_get, sum_up};
  static const char* const names[] = {"send and receive", "alltoall", "put and get", "allreduce"};
  int rank = 0, ranks = 0, total = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != RANKS) {
    fprintf(stderr, "start it with %d ranks\n", RANKS);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int i = 0; i < 4; ++i) {
    const int wrong = checks[i](rank);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s: %d rounds, %d blocks wrong\n", names[i], ROUNDS, all);
    total += all;
  }
  if (rank == 0) printf("in all %d wrong\n", total);
  MPI_Finalize();
  return total != 0;
}
