#!/usr/bin/env python3
"""Generate stub libraries for every NVIDIA library that the torch wheel's
shared objects need, from the undefined symbols of those shared objects.
A stub returns 0 (success); a few have hand-written bodies. The libcudart stubs
are linked to the fake runtime, the archive SIMCUDA, which has the rest.

  gen_stubs.py TORCH_LIB_DIR SIMCUDA OUT_DIR      writes OUT_DIR/*.c, *.map, build.sh

The names of the libraries, and with them the version of CUDA, are those that the shared objects
need.
"""

import os
import re
import subprocess
import sys

TLIB, SIMCUDA, OUT = sys.argv[1:4]
os.makedirs(OUT, exist_ok=True)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The libraries, with a regex for names without a version where they may have none. The node of a
# version is the soname, or the one in NODES.
LIBS = {
    "libcudart": None,
    "libcublas": None,
    "libcublasLt": None,
    "libcudnn": None,
    "libcusparse": None,
    "libcusolver": None,
    "libcufft": None,
    "libcurand": r"curand",
    "libnvrtc": None,
    "libcupti": None,
    "libnvshmem_host": r"nvshmem",
    "libcusparseLt": r"cusparseLt",
    "libcufile": r"cuFile",
    "libnccl": r"p?nccl",
    "libnvToolsExt": r"nvtx",
}
NODES = {"libnvshmem_host": "NVSHMEM", "libcusparseLt": None, "libcufile": None, "libnccl": None}


def lines(*command):
    return subprocess.run(command, text=True, capture_output=True).stdout.splitlines()


def nm(*args):
    return lines("nm", *args)


und = {}  # version -> set
unver = set()
defined = set()
sonames = {}  # library -> soname
for f in sorted(os.listdir(TLIB)):
    if ".so" not in f or not os.path.isfile(os.path.join(TLIB, f)):
        continue
    p = os.path.join(TLIB, f)
    for line in lines("readelf", "-d", p):
        needed = re.search(r"\(NEEDED\).*\[((\w+)\.so[.\d]*)\]", line)
        if needed and needed[2] in LIBS:
            sonames[needed[2]] = needed[1]
    for line in nm("-D", "--undefined-only", p):
        w = line.split()
        if not w:
            continue
        name, _, ver = w[-1].partition("@")
        ver = ver.lstrip("@")
        if ver:
            und.setdefault(ver, set()).add(name)
        else:
            unver.add(name)
    if f in ("libtorch_nvshmem.so", "libtorch_cuda.so"):
        for line in nm("-D", "--defined-only", p):
            defined.add(line.split()[-1].partition("@")[0])

words = (line.split() for line in nm("--defined-only", "--extern-only", SIMCUDA))
have = {w[2] for w in words if len(w) == 3 and w[2].startswith(("cu", "__cuda"))}
assert "cudaMalloc" in have and "cuMemCreate" in have, "no fake runtime: " + SIMCUDA
CUDA = int(sonames["libcudart"].rpartition(".")[2])

# Hand-written bodies. {name: C text}
H = {}


def body(name, text):
    H[name] = text


body(
    "cublasLtMatmulAlgoGetHeuristic",
    "int cublasLtMatmulAlgoGetHeuristic(void*a,void*b,void*c,void*d,void*e,void*f,void*g,"
    "int n,void*res,int*cnt){(void)a;(void)b;(void)c;(void)d;(void)e;(void)f;(void)g;"
    "if(n>0&&res)memset(res,0,96);if(cnt)*cnt=1;return 0;}",
)
body("cublasLtGetVersion", f"unsigned long cublasLtGetVersion(void){{return {CUDA}0000;}}")
body(
    "cublasLtGetCudartVersion",
    f"unsigned long cublasLtGetCudartVersion(void){{return {CUDA}000;}}",
)
body(
    "cudnnBackendCreateDescriptor",
    "int cudnnBackendCreateDescriptor(int t,void**d){(void)t;*d=calloc(1,256);return 0;}",
)
body(
    "cublasGetVersion_v2",
    f"int cublasGetVersion_v2(void*h,int*v){{(void)h;*v={CUDA}0000;return 0;}}",
)
body("cudnnGetVersion", "unsigned long cudnnGetVersion(void){return 91900;}")
body(
    "cudnnGetProperty",
    "int cudnnGetProperty(int what,int*v){static int of[]={9,19,0};*v=of[what];return 0;}",
)
body("cudnnGetCudartVersion", f"unsigned long cudnnGetCudartVersion(void){{return {CUDA}000;}}")
body("cudnnGetErrorString", 'const char*cudnnGetErrorString(int e){(void)e;return "fake cudnn";}')
body(
    "cudnnGetLastErrorString", "void cudnnGetLastErrorString(char*m,unsigned long n){if(n)m[0]=0;}"
)
for n in (
    "cublasGetStatusString",
    "cublasGetStatusName",
    "cusparseGetErrorString",
    "nvrtcGetErrorString",
    "ncclGetErrorString",
    "ncclGetLastError",
):
    body(n, f'const char*{n}(int e){{(void)e;return "fake";}}')
body("ncclGetVersion", "int ncclGetVersion(int*v){*v=22809;return 0;}")
body("nvrtcVersion", f"int nvrtcVersion(int*a,int*b){{*a={CUDA};*b=0;return 0;}}")
body("cuptiGetVersion", f"int cuptiGetVersion(unsigned*v){{*v={CUDA}0000;return 0;}}")
body(
    "cuptiGetResultString",
    'int cuptiGetResultString(int e,const char**s){(void)e;*s="fake";return 0;}',
)
# cudart
body(
    "cudaFuncGetAttributes",
    "int cudaFuncGetAttributes(void*a,const void*f){(void)f;struct cudaFuncAttributes_*x=a;"
    "memset(x,0,sizeof*x);x->maxThreadsPerBlock=1024;x->numRegs=32;"
    "x->ptxVersion=fakecuda_cc();x->binaryVersion=fakecuda_cc();"
    "x->maxDynamicSharedSizeBytes=232448;return 0;}",
)
# CUDA 12 has no edges here.
body(
    "cudaGraphNodeGetDependencies",
    "int cudaGraphNodeGetDependencies_v2();"
    + (
        "int cudaGraphNodeGetDependencies(void*n,void*to,void*edges,void*count)"
        "{return cudaGraphNodeGetDependencies_v2(n,to,edges,count);}"
        if CUDA >= 13
        else "int cudaGraphNodeGetDependencies(void*n,void*to,void*count)"
        "{return cudaGraphNodeGetDependencies_v2(n,to,(void*)0,count);}"
    ),
)
# The properties of a device in CUDA 12: the fields of CUDA 13, with seven more in between.
body(
    "cudaGetDeviceProperties_v2",
    "int cudaGetDeviceProperties_v2(char*to,int device){"
    "char from[1008];int cudaGetDeviceProperties();"
    "int e=cudaGetDeviceProperties(from,device);if(e)return e;memset(to,0,1032);"
    + "".join(
        f"memcpy(to+{to},from+{start},{end - start});"
        for start, end, to in [
            (0, 384, 0),  # to the alignment of textures
            (384, 388, 388),  # multiprocessors
            (388, 396, 396),  # is integrated, can map host memory
            (552, 592, 568),  # from the alignment of surfaces
            (592, 620, 612),  # from the width of the bus
            (624, 652, 640),  # from the shared memory of a multiprocessor
            (652, 660, 672),  # pageable memory
            (660, 672, 680),  # from compute preemption
            (672, 752, 696),  # from the shared memory that a block may opt in to
        ]
    )
    + "return 0;}",
)
for n in (
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
):
    body(n, f"int {n}(int*n){{*n=8;return 0;}}")
body(
    "cudaGetSymbolAddress",
    "int cudaGetSymbolAddress(void**p,const void*s){(void)s;*p=(void*)0x1f000000000ull;return 0;}",
)
body(
    "cudaGetSymbolSize",
    "int cudaGetSymbolSize(unsigned long*p,const void*s){(void)s;*p=8;return 0;}",
)
body(
    "__cudaRegisterFatBinary",
    "void**__cudaRegisterFatBinary(void*f){(void)f;static void*h[8];return h;}",
)
body("__cudaInitModule", "char __cudaInitModule(void**h){(void)h;return 1;}")
body("__cudaGetKernel", "int __cudaGetKernel(void**k,const void*f){*k=(void*)f;return 0;}")
# cuBLAS, driver
for n in ("cublasGetPointerMode_v2", "cublasGetMathMode"):
    body(n, f"int {n}(void*h,int*m){{(void)h;*m=0;return 0;}}")
body(
    "cuPointerGetAttribute",
    "int cuPointerGetAttribute(void*o,int a,unsigned long long p){"
    "(void)a;(void)p;*(int*)o=0;return 0;}",
)
body(
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "int cuOccupancyMaxActiveBlocksPerMultiprocessor(int*n){*n=8;return 0;}",
)

PROLOGUE = """/* generated by gen_stubs.py */
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <stdint.h>
int fakecuda_cc(void) __attribute__((weak));
struct cudaFuncAttributes_ {
  unsigned long sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
  int maxDynamicSharedSizeBytes, preferredShmemCarveout, clusterDimMustBeSet;
  int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed, reserved[16];
};
static void note(const char *n, int *once) {
  if (*once) return;
  *once = 1;
  if (getenv("FAKE_TRACE_STUBS")) fprintf(stderr, "stub %s\\n", n);
}
"""
CREATE = re.compile(r"(Create|create)")
mk = []
for base, so in sorted(sonames.items()):
    ver, rx = NODES.get(base, so), LIBS[base]
    names = set(und.get(ver, ())) if ver else set()
    if rx:
        names |= {n for n in unver if re.match(rx, n) and n not in defined}
    if base == "libcudart":
        names -= have
    c = [PROLOGUE]
    n_hand = 0
    # src/stubs/<library>.inc.c: a whole set written by hand (cuDNN's convolution
    # and batch norm paths, which need answers and not only success codes)
    hand = os.path.join(ROOT, "src", "stubs", base + ".inc.c")
    done = set()
    if os.path.exists(hand):
        text = open(hand).read()
        c.append(text)
        done = set(re.findall(r"\b([A-Za-z_]\w+)\s*\([^;{}]*\)\s*\{", text))
    for n in sorted(names):
        if n in done:
            n_hand += 1
            continue
        if n.startswith("_Z"):
            continue
        if n in H:
            c.append(H[n])
            n_hand += 1
        elif CREATE.search(n) and base not in ("libcudart", "libnccl"):
            c.append(
                f'int {n}(void**p){{static int o;note("{n}",&o);if(p)*p=calloc(1,256);return 0;}}'
            )
        else:
            c.append(f'int {n}(void){{static int o;note("{n}",&o);return 0;}}')
    open(f"{OUT}/{base}.c", "w").write("\n".join(c) + "\n")
    if base != "libcudart":
        flags = ""
        if ver:
            open(f"{OUT}/{base}.map", "w").write(f"{ver} {{ global: *; }};\n")
            flags = f"-Wl,--version-script={OUT}/{base}.map"
        mk.append((so, base, flags))
    print(f"{so}: {len(names)} stubs, {n_hand} by hand")
driver = sorted(
    n
    for n in unver
    if re.match(r"cu[A-Z]", n) and not n.startswith("cuFile") and n not in have and n not in defined
)
with open(f"{OUT}/libcuda.c", "w") as f:
    f.write(PROLOGUE)
    for n in driver:
        f.write(
            H[n] + "\n" if n in H else f'int {n}(void){{static int o;note("{n}",&o);return 0;}}\n'
        )
print("libcuda.so.1:", len(driver), "extra stubs")
with open(f"{OUT}/build.sh", "w") as f:
    f.write("#!/bin/sh\nset -e\nD=$1\nmkdir -p $D\n")
    for so, base, flags in mk:
        f.write(f"gcc -w -O1 -fPIC -shared {OUT}/{base}.c -Wl,-soname,{so} {flags} -o $D/{so}\n")
