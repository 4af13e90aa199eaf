// For the headers of the CUDA runtime where CUDA's compiler is not installed. It is searched last.
#pragma once

#include "host_defines.h"
