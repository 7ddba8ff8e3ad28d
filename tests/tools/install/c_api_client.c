/* SPDX-License-Identifier: Apache-2.0 */
/* usage: c_api_client HOST:PORT
   A program in C99 against an installation: one call, one stream of each shape, one error. It needs no header but sluice.h. Messages of
   Chat are written by hand: field 1, text; field 2, number. Prints "ok", or what went wrong. */
#include <sluice.h>

#include <stdio.h>
#include <string.h>

static int Fail(const char* what, sluice_status* status) {
  printf("%s: %s: %s\n", what, sluice_code_name(sluice_status_code(status)), sluice_status_message(status));
  sluice_status_free(status);
  return 1;
}

/* The field 1 of a message, which has less than 128 bytes. */
static int HasText(const sluice_message* message, const char* text) {
  const unsigned char* data = sluice_message_data(message);
  const size_t bytes = strlen(text);
  return sluice_message_bytes(message) >= bytes + 2 && data[0] == 0x0a && data[1] == bytes &&
         memcmp(data + 2, text, bytes) == 0;
}

static int CallOnce(sluice_channel* channel) {
  static const char kHello[] = "\x0a\x05hello";
  sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  sluice_message* reply = NULL;
  sluice_status* status;
  options.timeout_ns = INT64_C(60000000000);
  status = sluice_call_unary(channel, "sluice.tests.chat.Chat/Say", kHello, sizeof(kHello) - 1, &options, &reply);
  if (status != NULL) return Fail("call", status);
  if (!HasText(reply, "hello")) return Fail("call: another reply", NULL);
  sluice_message_free(reply);
  return 0;
}

static int ReadStream(sluice_channel* channel) {
  static const char kThree[] = "\x0a\x01x\x10\x03";
  sluice_stream* stream = NULL;
  sluice_message* message = NULL;
  int count = 0;
  sluice_status* status = sluice_stream_open(channel, "sluice.tests.chat.Chat/Tail", SLUICE_SERVER_STREAMS, kThree,
                                             sizeof(kThree) - 1, NULL, &stream);
  if (status != NULL) return Fail("open", status);
  while (sluice_stream_read(stream, SLUICE_FOREVER, &message) == SLUICE_STREAM_DONE) {
    if (!HasText(message, "x")) return Fail("read: another message", NULL);
    sluice_message_free(message);
    ++count;
  }
  status = sluice_stream_finish(stream, NULL);
  if (status != NULL) return Fail("finish", status);
  if (count != 3) return Fail("read: another number of messages", NULL);
  sluice_stream_free(stream);
  return 0;
}

static int Refused(sluice_channel* channel) {
  static const char kFail[] = "\x0a\x04" "fail";
  sluice_message* reply = NULL;
  sluice_status* status =
      sluice_call_unary(channel, "sluice.tests.chat.Chat/Say", kFail, sizeof(kFail) - 1, NULL, &reply);
  if (sluice_status_code(status) != SLUICE_NOT_FOUND || reply != NULL) return Fail("refused call", status);
  sluice_status_free(status);
  return 0;
}

int main(int argc, char** argv) {
  sluice_options* options = sluice_options_new();
  sluice_channel* channel = NULL;
  sluice_status* status;
  int bad;
  if (argc != 2 || options == NULL) return 2;
  status = sluice_options_set(options, "device", "softdc0");
  if (status == NULL) status = sluice_channel_connect(argv[1], options, &channel);
  sluice_options_free(options);
  if (status != NULL) return Fail("connect", status);
  bad = CallOnce(channel) || ReadStream(channel) || Refused(channel);
  sluice_channel_free(channel);
  if (!bad) printf("ok\n");
  return bad;
}
