/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI program for ./dev conformance: two ranks pass blocks back and forth and check every byte. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 65536, ROUNDS = 200 };

static unsigned char block[BLOCK_BYTES];

static int holds(unsigned char value) {
  for (int i = 0; i < BLOCK_BYTES; ++i) {
    if (block[i] != value) return 0;
  }
  return 1;
}

/* Rank 0 sends a value, rank 1 sends back the next one. The number of blocks that were wrong. */
static int play(int rank) {
  const int peer = 1 - rank;
  int wrong = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    const unsigned char sent = (unsigned char)(round + rank);
    if (rank == 1) {
      MPI_Recv(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += !holds((unsigned char)round);
    }
    memset(block, sent, BLOCK_BYTES);
    MPI_Send(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Recv(block, BLOCK_BYTES, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += !holds((unsigned char)(round + 1));
    }
  }
  return wrong;
}

int main(int argc, char** argv) {
  int rank = 0, wrong = 0, all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  wrong = play(rank);
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d rounds, %d blocks wrong\n", ROUNDS, all);
  MPI_Finalize();
  return wrong != 0;
}
