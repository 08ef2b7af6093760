void convolution(f32 p0[1][8][9][9], const f32 p1[243], const f32 p2[216]) {
  f32 scratch0[1296];
  boolx16 t0 = lanes(16) < 9;
  boolx8 t1 = lanes(8) < 5;
  for (i0 = 0; i0 < 2; i0++) {
    for (i2 = 0; i2 < 3; i2++) {
      for (i3 = 0; i3 < 3; i3++) {
        for (i4 = 0; i4 < 3; i4++) {
          for (i5 = 0; i5 < 5; i5++) {
            i32x16 t2 = ((i32)(i5*9) + lanes(16)) / 8*8;
            i32x16 t3 = ((i32)i5 + lanes(16)) % 8;
            i32x16 t4 = t2 + t3;
            i32x16 t5 = t4 / 9;
            boolx16 t6 = (i32)(i3*-1 + i0*-5) - t5 < 0 & (i32)(i3 + i0*5) + t5 < 10;
            i32x16 t7 = t4 % 9;
            boolx16 t8 = t6 & (i32)(i4*-1) - t7 < 0 & (i32)i4 + t7 < 10 & t4 < 45 & (i32)(i0*45) + t2 + t3 < 81;
            scratch0[i2*432 + i3*144 + i4*48 + i5*9 : +16 if t0] = p1[(i32)(i2*81 + i3*9 + i0*45 + i4) + t2 + t3 - 10 if t8 & t0];
          }
        }
      }
    }
    i32x8 t9 = (i32)(i0*45) + lanes(8);
    boolx8 t10 = t9 < 49;
    boolx8 t11 = t1 & t9 < 41;
    for (i1 = 0; i1 < 2; i1++) {
      f32x8 acc0, .., acc23 = 0.0;
      for (k0 = 0; k0 < 27; k0++) {
        f32x8 t12 = scratch0[k0*48 : +8];
        f32 t13 = p2[i1*108 + k0];
        f32x8 t14 = scratch0[k0*48 + 8 : +8];
        f32x8 t15 = scratch0[k0*48 + 16 : +8];
        f32x8 t16 = scratch0[k0*48 + 24 : +8];
        f32x8 t17 = scratch0[k0*48 + 32 : +8];
        f32x8 t18 = scratch0[k0*48 + 40 : +8];
        f32 t19 = p2[i1*108 + k0 + 27];
        f32 t20 = p2[i1*108 + k0 + 54];
        f32 t21 = p2[i1*108 + k0 + 81];
        acc0 = fma(t12, t13, acc0);
        acc1 = fma(t14, t13, acc1);
        acc2 = fma(t15, t13, acc2);
        acc3 = fma(t16, t13, acc3);
        acc4 = fma(t17, t13, acc4);
        acc5 = fma(t18, t13, acc5);
        acc6 = fma(t12, t19, acc6);
        acc7 = fma(t14, t19, acc7);
        acc8 = fma(t15, t19, acc8);
        acc9 = fma(t16, t19, acc9);
        acc10 = fma(t17, t19, acc10);
        acc11 = fma(t18, t19, acc11);
        acc12 = fma(t12, t20, acc12);
        acc13 = fma(t14, t20, acc13);
        acc14 = fma(t15, t20, acc14);
        acc15 = fma(t16, t20, acc15);
        acc16 = fma(t17, t20, acc16);
        acc17 = fma(t18, t20, acc17);
        acc18 = fma(t12, t21, acc18);
        acc19 = fma(t14, t21, acc19);
        acc20 = fma(t15, t21, acc20);
        acc21 = fma(t16, t21, acc21);
        acc22 = fma(t17, t21, acc22);
        acc23 = fma(t18, t21, acc23);
      }
      p0[i0*45 + i1*324 : +8] = acc0;
      p0[i0*45 + i1*324 + 8 : +8] = acc1;
      p0[i0*45 + i1*324 + 16 : +8] = acc2;
      p0[i0*45 + i1*324 + 24 : +8] = acc3;
      p0[i0*45 + i1*324 + 32 : +8 if t10] = acc4;
      p0[i0*45 + i1*324 + 40 : +8 if t11] = acc5;
      p0[i0*45 + i1*324 + 81 : +8] = acc6;
      p0[i0*45 + i1*324 + 89 : +8] = acc7;
      p0[i0*45 + i1*324 + 97 : +8] = acc8;
      p0[i0*45 + i1*324 + 105 : +8] = acc9;
      p0[i0*45 + i1*324 + 113 : +8 if t10] = acc10;
      p0[i0*45 + i1*324 + 121 : +8 if t11] = acc11;
      p0[i0*45 + i1*324 + 162 : +8] = acc12;
      p0[i0*45 + i1*324 + 170 : +8] = acc13;
      p0[i0*45 + i1*324 + 178 : +8] = acc14;
      p0[i0*45 + i1*324 + 186 : +8] = acc15;
      p0[i0*45 + i1*324 + 194 : +8 if t10] = acc16;
      p0[i0*45 + i1*324 + 202 : +8 if t11] = acc17;
      p0[i0*45 + i1*324 + 243 : +8] = acc18;
      p0[i0*45 + i1*324 + 251 : +8] = acc19;
      p0[i0*45 + i1*324 + 259 : +8] = acc20;
      p0[i0*45 + i1*324 + 267 : +8] = acc21;
      p0[i0*45 + i1*324 + 275 : +8 if t10] = acc22;
      p0[i0*45 + i1*324 + 283 : +8 if t11] = acc23;
    }
  }
}
