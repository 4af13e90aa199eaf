/* CUPTI: a profiler that records nothing. */

int cuptiGetVersion(uint32_t *version) {
  *version = CUDA * 10000;
  return 0;
}

int cuptiGetResultString(int result, const char **text) {
  *text = "simulated error";
  return 0;
}
