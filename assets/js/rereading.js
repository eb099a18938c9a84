/* Lambda and alpha on a finished audit. */
"use strict";
