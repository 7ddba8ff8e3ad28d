# SPDX-License-Identifier: Apache-2.0
@0xb2a1c6d5e4f30917;

interface Echo {
  say @0 (payload :Data) -> (payload :Data);
}
