from psoup.engine.process import main

raise SystemExit(main())
