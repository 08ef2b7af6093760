void columns(f32 p0[32], const f32 p1[384]) {
  for (i0 = 0; i0 < 2; i0++) {
    f32x16 acc0 = 0.0;
    for (k0 = 0; k0 < 12; k0++) {
      acc0 = acc0 + p1[i0*16 + k0*32 : +16];
    }
    p0[i0*16 : +16] = acc0;
  }
}
