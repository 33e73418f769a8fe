// Streams and events as CUDA's functions. No stream is ever captured: CUDA graphs are not emulated.
#include <cuda_runtime_api.h>

#include <utility>

#include "devices.h"
#include "handles.h"
#include "interface.h"
#include "memory.h"
#include "operators.h"

#define API EMULATED_CUDA_API

namespace emulated_cuda {

Stream& stream_of(void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  const bool is_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_default ? current_default_stream() : *static_cast<Stream*>(handle);
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  const Lock lock;
  *stream = reinterpret_cast<cudaStream_t>(make_stream(priority));
  return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock;
  forget_stream(&stream_of(stream));
  return cudaSuccess;
}
API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const Lock lock;
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock;
  synchronize(stream_of(stream));
  return cudaSuccess;
}
API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock;
  return query(stream_of(stream)) ? cudaSuccess : fail(cudaErrorNotReady);
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock;
  wait_for(event_of(event), stream_of(stream));
  return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const Lock lock;
  enqueue(stream_of(stream), {.run = [=] { function(data); }});
  return cudaSuccess;
}
API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  const Lock lock;
  enqueue(stream_of(stream), {.run = [=] { function(stream, cudaSuccess, data); }});
  return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                         cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode held = cudaStreamCaptureModeGlobal;
  std::swap(*mode, held);
  return cudaSuccess;
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(std::make_shared<Event>()));
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock;
  delete &event_of(event);
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock;
  record(event_of(event), stream_of(stream));
  return cudaSuccess;
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock;
  synchronize(*event_of(event));
  return cudaSuccess;
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock;
  return query(*event_of(event)) ? cudaSuccess : fail(cudaErrorNotReady);
}
API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock;
  const Event& from = *event_of(begin);
  const Event& to = *event_of(end);
  if (!from.last || !to.last) return fail(cudaErrorInvalidResourceHandle);
  if (!from.last->performed || !to.last->performed) return fail(cudaErrorNotReady);
  *milliseconds = static_cast<float>(1e3 * (to.last->time - from.last->time));
  return cudaSuccess;
}
