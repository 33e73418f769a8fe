// sanitized.h: LOWTIDE_SANITIZED is 1 where a sanitizer watches addresses or threads. gcc has macros for that, clang
// features.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOWTIDE_SANITIZED 1
#elif defined(__has_feature)
#define LOWTIDE_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define LOWTIDE_SANITIZED 0
#endif
