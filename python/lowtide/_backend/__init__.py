"""`torch.compile(backend="lowtide")`: the planner behind PyTorch's own compiler."""
