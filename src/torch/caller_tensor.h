// caller_tensor.h: a tensor that the caller owns, held as the Python object that it is to the caller.
//
// An object can be given another tensor (torch.utils.swap_tensors, and modules that are moved or loaded by it), but
// only while nobody holds the tensor that it has. So a program holds the object, and looks behind it at each run.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <memory>

namespace lowtide::torch_runtime {

class CallerTensor {
 public:
  CallerTensor() = default;
  explicit CallerTensor(PyObject* object);  // one more reference to it; wants the GIL

  explicit operator bool() const { return object_ != nullptr; }

  // What is behind it now. Wants the GIL.
  const at::Tensor& tensor() const;

 private:
  struct Release {
    void operator()(PyObject* object) const;  // takes the GIL
  };
  std::unique_ptr<PyObject, Release> object_;
};

}  // namespace lowtide::torch_runtime
