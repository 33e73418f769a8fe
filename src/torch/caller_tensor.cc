#include "caller_tensor.h"

#include <torch/csrc/autograd/python_variable.h>

namespace lowtide::torch_runtime {

CallerTensor::CallerTensor(PyObject* object) {
  TORCH_CHECK(THPVariable_Check(object), "lowtide: expected a tensor, got ", Py_TYPE(object)->tp_name);
  Py_INCREF(object);
  object_.reset(object);
}

const at::Tensor& CallerTensor::tensor() const {
  return THPVariable_Unpack(object_.get());
}

void CallerTensor::Release::operator()(PyObject* object) const {
  if (Py_IsInitialized() == 0) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(object);
  PyGILState_Release(state);
}

}  // namespace lowtide::torch_runtime
