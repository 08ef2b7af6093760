void matmul(f32 p0[64][128], const f32 p1[32768], const f32 p2[65536], const f32 p3[128]) {
  // core = 0..1, side by side
  f32x64 t0 = p3[core*64 : +64];
  for (i0 = 0; i0 < 16; i0++) {
    f32x64 acc0, acc1, acc2, acc3 = 0.0;
    for (k0 = 0; k0 < 512; k0++) {
      f32x64 t1 = p2[core*64 + k0*128 : +64];
      acc0 = fma(p1[i0*2048 + k0], t1, acc0);
      acc1 = fma(p1[i0*2048 + k0 + 512], t1, acc1);
      acc2 = fma(p1[i0*2048 + k0 + 1024], t1, acc2);
      acc3 = fma(p1[i0*2048 + k0 + 1536], t1, acc3);
    }
    p0[core*64 + i0*512 : +64] = max(acc0 + t0, 0.0);
    p0[core*64 + i0*512 + 128 : +64] = max(acc1 + t0, 0.0);
    p0[core*64 + i0*512 + 256 : +64] = max(acc2 + t0, 0.0);
    p0[core*64 + i0*512 + 384 : +64] = max(acc3 + t0, 0.0);
  }
}
