/* Pictures of a step and of the chain. */
"use strict";
