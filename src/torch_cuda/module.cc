// lowtide._torch_cuda: planned memory on CUDA devices. Loaded where PyTorch has CUDA, with the runtime of
// lowtide._torch.
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "device_cuda.h"
#include "front_allocator.h"

namespace py = pybind11;

namespace {

using lowtide::torch_runtime::CudaDevice;
using lowtide::torch_runtime::Runtime;

// Once for each device: `runtime` is what lowtide._torch gives.
void enable(const py::capsule& capsule, c10::DeviceIndex index) {
  if (CudaDevice::at(index) != nullptr) return;
  TORCH_CHECK(std::string(capsule.name()) == Runtime::kCapsule, "lowtide: not a runtime");
  auto& runtime = *capsule.get_pointer<Runtime>();
  c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
  runtime.add_device(new CudaDevice(index, runtime, lowtide::torch_runtime::put_in_front(runtime)));
}

}  // namespace

PYBIND11_MODULE(_torch_cuda, module) {
  module.def("enable", &enable, py::arg("runtime"), py::arg("index"));
  module.def(
      "leave_out_waits",
      [](c10::DeviceIndex index, bool leave_out) { CudaDevice::at(index)->leave_out_waits(leave_out); },
      py::arg("index"), py::arg("leave_out"));
  module.def(
      "leave_out_waits_of_transfers",
      [](c10::DeviceIndex index, bool before, bool after) {
        CudaDevice::at(index)->host()->leave_out_waits(before, after);
      },
      py::arg("index"), py::arg("before"), py::arg("after"));
  module.attr("BUILT_FOR") = TORCH_VERSION;
}
