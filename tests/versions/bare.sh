#!/usr/bin/env bash
# Tries a wheel where there is nothing but Python and the libraries of a plain system: no compiler, no oneTBB, simdjson,
# zstd or HiGHS. Installs it beside a wheel of PyTorch, without an index, and runs README's example. Needs root.
#
#   bash tests/versions/bare.sh PREFIX_OF_PYTHON WHEEL FOLDER_WITH_PYTORCH_AND_WHAT_IT_NEEDS
set -euo pipefail
prefix=$(realpath "${1:?usage: bare.sh PREFIX WHEEL FOLDER}")
wheel=$(realpath "${2:?usage: bare.sh PREFIX WHEEL FOLDER}")
wheels=$(realpath "${3:?usage: bare.sh PREFIX WHEEL FOLDER}")
cd "$(dirname "$0")/../.."
root=$PWD/build/bare
rm -rf "$root"
mkdir -p "$root"/{bin,dev,etc,proc,tmp,wheels,lib64,"$prefix"}
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
# What Python and its modules load, PyTorch's C++ runtime, and two programs. A library that only Python's windows need
# stays out.
libraries=$(ldd "$prefix"/bin/python3 "$prefix"/lib/python3*/lib-dynload/_{ssl,ctypes,bz2,lzma,uuid}*.so \
  "$prefix"/lib/python3*/lib-dynload/zlib*.so /bin/sh /bin/date | awk '$3 ~ "^/(usr/)?lib" {print $3}' | sort -u)
for library in $libraries $(g++ -print-file-name=libstdc++.so.6) $(g++ -print-file-name=libgcc_s.so.1) \
  /lib/x86_64-linux-gnu/lib{dl,pthread,rt,util}.so.*; do
  cp -L --parents "$library" "$root/" 2>/dev/null || cp -L "$library" "$root/lib64/"
done
cp -L /bin/sh /bin/date "$root/bin/"
cp -a "$prefix/." "$root$prefix/"
rm -rf "$root$prefix"/lib/python3*/{test,config-*}
cp "$wheel" "$wheels"/*.whl "$root/wheels/"
awk '/^```python/ {on = 1; next} /^```/ {on = 0} on' README.md >"$root/example.py"
cat >"$root/try.sh" <<'END'
set -e
export HOME=/tmp PATH=PREFIX/bin:/bin PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=
unset PIP_FIND_LINKS PIP_CONFIG_FILE
for tool in gcc g++ cc cmake ninja; do if command -v $tool; then echo "a compiler is here"; exit 1; fi; done
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install -q --no-index --find-links /wheels torch
begin=$(date +%s%N)
/tmp/venv/bin/pip install -q --no-index --no-deps /wheels/lowtide-*.whl
echo "pip install lowtide: $(( ($(date +%s%N) - begin) / 1000000 )) ms"
/tmp/venv/bin/lowtide --version
begin=$(date +%s%N)
/tmp/venv/bin/python3 /example.py
echo "README's example: $(( ($(date +%s%N) - begin) / 1000000 )) ms"
/tmp/venv/bin/python3 -c 'import lowtide, torch; print(lowtide.__version__, torch.__version__, lowtide.compile.__module__)'
END
sed -i "s|PREFIX|$prefix|" "$root/try.sh"
ls "$root"/usr/lib/x86_64-linux-gnu "$root"/lib/x86_64-linux-gnu 2>/dev/null | grep -E 'tbb|simdjson|zstd|highs' && exit 1
unshare --mount --pid --fork sh -c "mount -t proc none '$root/proc' && mount --rbind /dev '$root/dev' && exec chroot '$root' /bin/sh /try.sh"
