#!/bin/sh
# Creates a Python environment with PyTorch's CUDA build and no library of NVIDIA's: setup.sh VENV_DIR
#
# PyPI's wheel of this version is the CUDA build. Package indexes of this machine may prefer the CPU build, so they are
# left out.
set -eu
venv=${1:?usage: setup.sh VENV_DIR}
unset PIP_FIND_LINKS
export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1
python3 -m venv "$venv"
"$venv/bin/pip" install -q --no-compile --no-deps torch==2.13.0
"$venv/bin/pip" install -q --no-compile filelock typing-extensions sympy networkx jinja2 fsspec 'setuptools>=77.0.3' numpy \
  pytest pytest-xdist 'transformers>=5' 2>&1 | grep -v '^torch 2.13.0 requires\|dependency' || true
"$venv/bin/python" -c 'import transformers'
