void rows(f32 p0[3][16], const f32 p1[128], const i64 p2[3]) {
  for (i0 = 0; i0 < 3; i0++) {
    i64 t0 = p2[i0];
    i64 t1 = t0 < 0 ? t0 + 8 : t0;
    i64 t2 = t1*16;
    bool t3 = t1 >= 0 & t1 < 8;
    for (i1 = 0; i1 < 2; i1++) {
      p0[i0*16 + i1*8 : +8] = p1[t2 + i1*8 : +8 if t3];
    }
  }
}
